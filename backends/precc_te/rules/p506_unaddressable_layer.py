"""A decision depends on the layer in a way that the trainer cannot address.

Megatron numbers layers within a pipeline stage and a virtual chunk, and its recipes see only that number. Whole first
and last layers in BF16 are said by global counts instead (`--num-layers-at-end-in-bf16`), under FP8 at most as many
as a stage has layers. Everything else that depends on a layer needs one recipe file a stage: equal stages, and no
virtual ones. Where no layout is stated, one stage is assumed, and that is a warning.

```prec expect=P506 model=qwen3-30b-a3b
default: mxfp8
layers[20]: bf16
train: pp=4 vpp=2
```

```prec expect=P506 model=qwen3-30b-a3b
default: mxfp8
layers[-15%:]: bf16
train: pp=8
```

```prec expect=P506 model=qwen3-30b-a3b
default: mxfp8
layers[20]: bf16
```

Move the exception to the first or last layers, or train with fewer stages.

```prec model=qwen3-30b-a3b
default: mxfp8
layers[-15%:]: bf16
train: pp=4 vpp=2
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract, Entry
from precc.contract.wording import counted_names, outer_layers
from precc.diagnostics import Diagnostic, Severity, error, warning
from precc_te.modules import Modules, modules_of
from precc_te.plan import Layering, global_mode, layering
from precc_te.precision import part_apart

CODE = "P506"
NAME = "unaddressable-layer"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """The flags' own cap, and exceptions under a layout that has no file a stage."""
    modules = modules_of(contract)
    found = layering(modules.precisions, contract.model.layers)
    yield from _over_cap(contract, modules, found)
    yield from _unaddressed(contract, modules, found)


def _over_cap(contract: Contract, modules: Modules, found: Layering) -> Iterator[Diagnostic]:
    layers, stages = contract.model.layers, contract.train.pp
    most = max(found.start, found.end)
    if most <= layers // stages or global_mode(set(modules.quantized)) == "nvfp4":
        return
    kept = range(found.start) if found.start == most else range(layers - most, layers)
    yield error(
        CODE,
        f"{_side(found)} {most} layers stay in BF16, and under FP8 Megatron allows {layers // stages} at pp={stages} "
        f"({layers} layers // {stages})",
        _first(modules, kept).span,
        help=f"train with `pp` of at most {layers // most}, or keep at most {layers // stages} layers",
    )


def _side(found: Layering) -> str:
    return "the first" if found.start >= found.end else "the last"


def _unaddressed(contract: Contract, modules: Modules, found: Layering) -> Iterator[Diagnostic]:
    train, layers = contract.train, contract.model.layers
    if not found.exceptions:
        return
    if train.pp == 1 and train.vpp == 1:
        yield from _unstated(contract, modules, found)
        return
    if train.vpp > 1:
        why = f"vpp={train.vpp} numbers layers within virtual chunks"
    elif layers % train.pp:
        why = f"{layers} layers do not divide into pp={train.pp} equal stages"
    else:
        return
    entries, part = _excepted(modules, found)
    fits = [stages for stages in range(1, layers + 1) if layers % stages == 0]
    whole = outer_layers(set(found.exceptions), layers) if len(found.exceptions) <= layers // train.pp else ""
    yield error(
        CODE,
        f"{counted_names(entries)} differ from the same weights of other layers, and {why}: no recipe can name them",
        entries[0].span_of(part),
        help=f"train with vpp=1 and one of pp={', '.join(map(str, fits))}"
        + (f", or except all of `{whole}`" if whole else ""),
    )


def _excepted(modules: Modules, found: Layering) -> tuple[list[Entry], str]:
    """The entries that differ from the same weights of other layers, and the part in which the first does."""
    excepted = [
        (line.entry, line.module.suffix, found.exceptions[line.module.layer or 0][line.module.suffix])
        for line in modules.lines
        if line.module is not None and line.module.suffix in found.exceptions.get(line.module.layer or 0, {})
    ]
    _, kind, precision = excepted[0]
    return [entry for entry, _, _ in excepted], part_apart(precision, found.general[kind])


def _unstated(contract: Contract, modules: Modules, found: Layering) -> Iterator[Diagnostic]:
    if not contract.train.stated:
        entries, part = _excepted(modules, found)
        yield warning(
            CODE,
            f"{counted_names(entries)} differ from the same weights of other layers, and no `train:` layout is stated: "
            "their numbers hold for one pipeline stage only",
            entries[0].span_of(part),
            help="state how the trainer runs, such as `train: pp=1`; with more stages there is one recipe file each",
        )


def _first(modules: Modules, layers: range) -> Entry:
    return next(line.entry for line in modules.lines if line.module is not None and line.module.layer in layers)
