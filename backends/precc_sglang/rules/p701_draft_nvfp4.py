"""SGLang: the next-token draft model discards an NVFP4 config.

The draft classes of DeepSeek, GLM and Qwen3.5 drop a ModelOpt FP4 config and build every layer unquantized: an MTP
layer stored in NVFP4 cannot be loaded. That of Nemotron-H keeps it.

```prec expect=P701 model=deepseek-v3
targets: sglang
@routed_experts: nvfp4 per_token
@routed_experts in @mtp: nvfp4 per_token
```

MTP layers stay in BF16 unless a rule names them:

```prec model=deepseek-v3
targets: sglang
@routed_experts: nvfp4 per_token
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract
from precc.diagnostics import Diagnostic, Severity
from precc_sglang.families import NVFP4_WEIGHTS, is_w4a4
from precc_sglang.methods import choice_of
from precc_sglang.names import Kind
from precc_sglang.refusal import refuse
from precc_sglang.versions import release_of

CODE = "P701"
NAME = "sglang-draft-discards-nvfp4"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding for all NVFP4 weights of MTP layers."""
    choice = choice_of(contract)
    if choice is None or not choice.built.drops_nvfp4_draft:
        return
    draft = [
        entry
        for module, entry, family in choice.entries(Kind.LINEAR, Kind.EXPERTS)
        if module.draft and (is_w4a4(family) or family is NVFP4_WEIGHTS)
    ]
    yield from refuse(
        contract,
        CODE,
        draft,
        "drops an NVFP4 config in the draft model that runs an MTP layer",
        "write `bf16` or `mxfp8` for it" if "MXFP8" in release_of(contract.rollout).mixed else "write `bf16` for it",
    )
