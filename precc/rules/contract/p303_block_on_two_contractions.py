"""A one-dimensional block stands on a tensor that is contracted along two axes.

With absorbed multi-head latent attention the server multiplies `kv_b_proj` from both sides: the key half is
contracted along its output axis, the value half along its input axis. The trainer, which does not absorb, contracts
along the input axis only. A block of 1×16 or 1×32 fits one of the two, so the two sides would round differently;
SGLang requantizes or breaks such a weight without an error.

```prec expect=P303 model=deepseek-v3
default: mxfp8
```

Keep it in BF16 (1.90625 GiB on DeepSeek-V3), or give it square blocks:

```prec model=deepseek-v3
default: mxfp8
@mla: bf16
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract, Entry
from precc.contract.wording import folded_names
from precc.diagnostics import Diagnostic, Severity, error

CODE = "P303"
NAME = "block-on-two-contractions"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """Every weight that absorption contracts along two axes."""
    found: dict[object, list[Entry]] = {}
    for entry in contract.quantized():
        block = entry.decision.weight.block
        if len(entry.tensor.contracted) > 1 and block is not None and block[0] == 1 < block[1]:
            found.setdefault((entry.cause, entry.tensor.outer), []).append(entry)
    for entries in found.values():
        yield error(
            CODE,
            f"{folded_names(entries)}: absorbed MLA contracts it along both axes, and "
            f"{entries[0].decision.weight.format} has one-dimensional blocks",
            entries[0].span,
            help=f"write `{_exception(entries[0])}` after this rule",
        )


def _exception(entry: Entry) -> str:
    outer = entry.tensor.outer
    return f"@mla in @{outer.value}: bf16" if outer is not None else f"{entry.tensor.path[-1]}: bf16"
