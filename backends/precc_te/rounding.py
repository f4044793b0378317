"""`train fake_quant` in a built Megatron model: its forward rounds those weights as the converter does.

    import precc, precc_te
    contract = precc.load_contract("out")
    precc_te.fake_quantize(model, contract)
    precc_te.attest(model, contract)

on every rank, when the model is built and before the first step; before or after it is wrapped and its optimizer made.
The linear layers run in BF16, so no recipe can say this: without the call, BF16 is trained and INT4 served.

Parameters keep their names, values and gradients: checkpoints, the optimizer and the live export see the weight in
full. Experts are `weight0`, `weight1`… of a grouped linear layer or `weight` of one each; gate and up are rows of one
weight, and groups run along columns, so that each is rounded as it would be alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from precc.contract import Contract, Entry
from precc.contract.wording import counted_names
from precc.diagnostics import Diagnostic, error
from precc.formats import Quantization
from precc.records import record
from precc_te import walk
from precc_te.addresses import Addresses
from precc_te.names import Module

CALL = "precc_te.fake_quantize(model, contract)"

_WEIGHT = re.compile(r"weight\d*\Z")


@record
class Rounding:
    """How a forward rounds a weight: to what, along which axis, and from which 16-bit dtype it is handed over in."""

    spec: Quantization
    stored: str = "bfloat16"
    axis: int = -1

    def __str__(self) -> str:
        axis = "" if self.axis == -1 else f" along axis {self.axis}"
        return f"{self.spec} from {self.stored}{axis}"


@record
class _Rounded:
    """One linear layer that rounds its weights, and what it is in the contract."""

    linear: walk.Linear
    names: tuple[str, ...]
    rounding: Rounding


def rounding_of(entry: Entry) -> Rounding | None:
    """How the trainer rounds a tensor: from FP16 where the checkpoint is, from BF16 otherwise."""
    if entry.decision.train != "fake_quant":
        return None
    return Rounding(entry.decision.weight, "float16" if entry.tensor.dtype == "fp16" else "bfloat16")


def fake_quantize(model: Any, contract: Contract) -> int:
    """From now on the forward rounds each weight of `train fake_quant` that this rank holds; this is their number.

    `model` is a GPTModel, or the list of a rank's virtual chunks, wrapped or not. Those layers no longer add gradients
    to `main_grad` themselves (`--gradient-accumulation-fusion` is off for them): the gradient passes the rounding
    first. From the forward to the backward they hold the rounded weight beside the weight.

    Raises TypeError for no model, and ValueError, before anything is changed, where a layer of the contract is not
    there, has shards that end within a group, delays the gradients of its weights, or rounds them already.
    """
    from precc.quant import FakeQuantized, round_in_place

    chunks = walk.peeled(model)
    found = list(_rounded(chunks, Addresses(contract, walk.mtp_inner(chunks))))
    for each in found:
        _require_fit(each)
    for each in found:
        round_in_place(each.linear.module, each.names, FakeQuantized(each.rounding.spec, stored=_dtype(each.rounding)))
        each.linear.module.fuse_wgrad_accumulation = False
    return sum(len(each.names) for each in found)


def _dtype(rounding: Rounding) -> Any:
    import torch

    return getattr(torch, rounding.stored)


def _rounded(chunks: Sequence[Any], addresses: Addresses) -> Iterator[_Rounded]:
    wanted = {module: rounding for module in addresses.entries if (rounding := _wanted(module, addresses)) is not None}
    found: set[Module] = set()
    for linear in walk.linears(chunks):
        module = addresses.module(linear.path)
        if module in wanted:
            found.add(module)
            yield _Rounded(linear, weights_of(linear.module), wanted[module])
    absent = [module for module in wanted.keys() - found if walk.is_held(module, walk.held_layers(chunks))]
    if absent:
        entries = [entry for module in addresses.entries if module in absent for entry in addresses.entries[module]]
        raise ValueError(f"the model has no linear layer for {counted_names(entries)}, which the contract rounds")


def _wanted(module: Module, addresses: Addresses) -> Rounding | None:
    """How the contract rounds a linear layer: all of its tensors alike, or nothing is compiled."""
    return rounding_of(addresses.entries[module][0])


def weights_of(module: Any) -> tuple[str, ...]:
    """The names of a linear layer's weights: one a local expert where they are grouped."""
    held = (*module._parameters, *getattr(module, "parametrizations", ()))
    return tuple(name for name in held if _WEIGHT.match(name))


def _require_fit(each: _Rounded) -> None:
    """This raises ValueError where a layer's own weights cannot be rounded in its forward."""
    from precc.quant import roundings

    module, where, block = each.linear.module, each.linear.local, each.rounding.spec.block
    experts = getattr(module, "num_gemms", 1)
    if len(each.names) != experts:
        held = ", ".join(each.names) or "none"
        raise ValueError(
            f"`{where}` has {experts} weights to round, and holds {held}: build it without one grouped weight"
        )
    if roundings(module):
        raise ValueError(f"`{where}` rounds its weights already: call this once")
    if getattr(module.config, "delay_wgrad_compute", False):
        raise ValueError(
            f"`{where}` delays the gradients of its weights, past the rounding: leave --delay-wgrad-compute out"
        )
    for name in each.names:
        columns = module._parameters[name].shape[-1]
        if block is not None and columns % block[1]:
            raise ValueError(
                f"`{where}.{name}` has {columns} columns on this rank: a group of {block[1]} crosses to the next rank; "
                "train with less tensor parallelism (for experts: expert tensor parallelism), or smaller groups"
            )


def elsewhere(chunks: Sequence[Any], linears: Sequence[walk.Linear]) -> Iterator[Diagnostic]:
    """Weights that are rounded outside the linear layers that a recipe can reach."""
    inside = {id(linear.module) for linear in linears}
    for chunk in chunks:
        for path, module in chunk.named_modules():
            for name, has in held(module).items() if id(module) not in inside else ():
                yield error(
                    "P511", f"`{path}.{name}` is rounded to {has} in the forward; the contract rounds nothing there"
                )


def differences(seen: Mapping[Module, Sequence[walk.Linear]], addresses: Addresses) -> Iterator[Diagnostic]:
    """Weights that the forward rounds and the contract does not, or the other way, or otherwise."""
    groups: dict[tuple[str, Rounding | None, Rounding | None], list[tuple[Module, str]]] = {}
    for module, linears in seen.items():
        wanted = _wanted(module, addresses)
        for linear in linears:
            has = held(linear.module)
            for name in weights_of(linear.module):
                if has.get(name) != wanted:
                    key = (module.suffix, has.get(name), wanted)
                    groups.setdefault(key, []).append((module, f"{linear.local}.{name}"))
    for (_, runs, wanted), places in groups.items():
        yield _difference(runs, wanted, places, addresses)


def _difference(
    has: Rounding | None, wanted: Rounding | None, places: Sequence[tuple[Module, str]], addresses: Addresses
) -> Diagnostic:
    entries = [entry for module in dict.fromkeys(module for module, _ in places) for entry in addresses.entries[module]]
    others = f" (and {len(places) - 1} more weights)" if len(places) > 1 else ""
    return error(
        "P511",
        f"`{places[0][1]}`{others} is {_said(has)} in the forward; the contract says {_said(wanted)} for "
        f"{counted_names(entries)}",
        entries[0].span,
        help=f"call `{CALL}` when the model is built" if wanted is not None else "leave that rounding out",
    )


def _said(rounding: Rounding | None) -> str:
    return "not rounded" if rounding is None else f"rounded to {rounding}"


def held(module: Any) -> dict[str, Rounding]:
    """The weights that a layer's forward rounds, and how."""
    from precc.quant import roundings

    return {name: _rounding(each, _parameter(module, name)) for name, each in roundings(module).items()}


def _parameter(module: Any, name: str) -> Any:
    """A parameter as it is, where it lies and where torch's parametrization has moved it."""
    moved = getattr(module, "parametrizations", {})
    return moved[name].original if name in moved else module._parameters[name]


def _rounding(each: Any, weight: Any) -> Rounding:
    stored = str(each.stored or weight.dtype).removeprefix("torch.")
    axis = -1 if each.axis in (-1, weight.ndim - 1) else each.axis
    return Rounding(each.spec, stored, axis)
