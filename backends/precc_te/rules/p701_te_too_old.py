"""The TransformerEngine of the layout lacks a feature that the contract needs.

Per-token NVFP4 came with 2.16, four-over-six with 2.17. One process has one backward mode, one setting of NVFP4 and
one type of block scale, read from its environment; a contract with two of either needs a recipe factory for each, and
the quantizers that these build came with 2.19.

```prec expect=P701 model=qwen3-30b-a3b
default: mxfp8
layers[24:]: mxfp8, backward dequantized
train: te=2.18
```

Train with a newer one, or make the contract uniform.

```prec model=qwen3-30b-a3b
default: mxfp8
layers[24:]: mxfp8, backward dequantized
train: te=2.19
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract
from precc.contract.wording import counted_names
from precc.diagnostics import Diagnostic, Severity, error
from precc_te.modules import Modules, modules_of
from precc_te.plan import choose_process, needs_factory
from precc_te.precision import TePrecision
from precc_te.versions import BACKWARD_OVERRIDE, FACTORIES, FOUR_OVER_SIX, ROW_SCALING, SINCE, engine_of

CODE = "P701"
NAME = "te-too-old"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding a feature that is missing."""
    engine = engine_of(contract.train)
    modules = modules_of(contract)
    for feature, users in _users(modules).items():
        if engine.has(feature):
            continue
        entries = [line.entry for precision in users for line in modules.quantized[precision]]
        since = ".".join(map(str, SINCE[feature]))
        shown = "; ".join(dict.fromkeys(str(entry.decision) for entry in entries))
        yield error(
            CODE,
            f"TransformerEngine {engine.te} has no {feature}, which {counted_names(entries)} need: {shown}",
            entries[0].span_of(_part(feature, modules)),
            help=f"train with te={since} or newer" + (_UNIFORM if feature == FACTORIES else ""),
        )


_UNIFORM = ", or give all of them one backward mode and one setting of each format"


def _users(modules: Modules) -> dict[str, list[TePrecision]]:
    process = choose_process({precision: len(lines) for precision, lines in modules.quantized.items()})
    used = list(modules.quantized)
    found = {
        BACKWARD_OVERRIDE: [p for p in used if p.backward != "native"],
        ROW_SCALING: [p for p in used if p.row_scaled],
        FOUR_OVER_SIX: [p for p in used if p.four_over_six],
        FACTORIES: [p for p in used if needs_factory(p, process)],
    }
    return {feature: users for feature, users in found.items() if users}


def _part(feature: str, modules: Modules) -> str:
    """The part of a decision that asks for a feature: for factories, what the contract has two of."""
    if feature == FACTORIES and len({precision.backward for precision in modules.quantized}) == 1:
        return "weight"
    return _PARTS[feature]


_PARTS = {BACKWARD_OVERRIDE: "backward", ROW_SCALING: "input", FOUR_OVER_SIX: "weight", FACTORIES: "backward"}
