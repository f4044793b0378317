"""SGLang: these formats cannot stand in one checkpoint.

The one method that mixes formats, `modelopt_mixed`, knows MXFP8, FP8 in blocks, static per-tensor FP8, NVFP4 and
weight-only NVFP4. INT4 and per-channel FP8 have a method of their own, beside unquantized tensors only; an algorithm
that a mix does not know would be served unquantized without a word.

MXFP4 experts of DeepSeek-V4 stand beside block FP8, which is one method to SGLang.

In SGLang 0.5.16 a mix knows neither MXFP8 nor block FP8.

```prec expect=P701 model=qwen3-30b-a3b
targets: sglang
@routed_experts: weight int4 group 32, train fake_quant
@attention: mxfp8
```

```prec expect=P701 model=qwen3-30b-a3b
targets: sglang
rollout: sglang=0.5.16
@routed_experts: nvfp4 per_token
@attention: mxfp8
```

Leave the rest unquantized:

```prec model=qwen3-30b-a3b
targets: sglang
@routed_experts: weight int4 group 32, train fake_quant
```
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from precc.contract import Contract
from precc.diagnostics import Diagnostic, Severity
from precc_sglang.families import Family, family_of, mixable
from precc_sglang.methods import choose, four_bit_experts, quantized_families
from precc_sglang.refusal import refuse
from precc_sglang.versions import release_of, version_that

CODE = "P701"
NAME = "sglang-formats-not-together"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding at the first tensor whose format does not mix."""
    families, release = quantized_families(contract.entries), release_of(contract.rollout)
    if choose(families, release) is not None or four_bit_experts(contract):
        return
    beyond = families - mixable(release)
    alone = [entry for entry in contract.quantized() if family_of(entry.decision) in beyond]
    newer = version_that(lambda other: choose(families, other) is not None)
    others = ", ".join(sorted({family.title for family in families}))
    yield from refuse(
        contract,
        CODE,
        alone,
        f"has no method for {others} in one model",
        _ALONE if newer is None else _newer(newer, beyond),
    )


_ALONE = (
    "INT4 (with one group size) and per-channel FP8 stand alone: write `bf16` for the others, or one of MXFP8, block "
    "FP8 and NVFP4 for this"
)


def _newer(version: str, beyond: Iterable[Family]) -> str:
    names = ", ".join(sorted(family.title for family in beyond))
    return f"a mix has {names} from {version} on: write `rollout: sglang={version}`, or `bf16` for the others"
