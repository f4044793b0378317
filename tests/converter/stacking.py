"""Checkpoints whose experts are stacked in 3-D tensors, made from those whose experts stand one by one.

A family of the catalogue that stacks its experts does it in one order; here one model is stacked in each, under the
contract of the unstacked model with other tensors in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from converter.checkpoints import OTHER_FILES, Weights, load_checkpoint, write_shards
from converter.conversions import Case, plain
from converter.encoding import in_fp8_blocks

from precc.contract import Contract, Entry, contract_to_json
from precc.graph.forms import Form
from precc.graph.model import Tensor


@dataclass(frozen=True)
class Order:
    """How a layer's experts are stacked.

    `[experts, output, input]` or, `transposed`, `[experts, input, output]`; gate and up in one tensor, one after the
    other or row by row in turn (`interleaved`), or each in its own (`separate`).
    """

    transposed: bool = False
    interleaved: bool = False
    separate: bool = False
    fp8: bool = False

    @property
    def parts(self) -> dict[str, tuple[str, ...]]:
        """The stacked tensors of a layer, and the weights in each."""
        joined = {"gate_proj": ("gate",), "up_proj": ("up",)} if self.separate else {"gate_up_proj": ("gate", "up")}
        return {**joined, "down_proj": ("down",)}

    def stack(self, experts: list[list[torch.Tensor]]) -> torch.Tensor:
        """One tensor of each expert's weights."""
        joined = [self._join(weights) for weights in experts]
        return torch.stack([matrix.t() if self.transposed else matrix for matrix in joined]).contiguous()

    def _join(self, weights: list[torch.Tensor]) -> torch.Tensor:
        return torch.stack(weights, 1).flatten(0, 1) if self.interleaved else torch.cat(weights)


def stacked(made: Case, order: Order, folder: Path) -> Case:
    """The same model with its experts stacked, and its contract."""
    contract = made.contract
    entries = list(_entries(contract, order))
    model = replace(contract.model, tensors=tuple(entry.tensor for entry in entries))
    again = replace(contract, model=model, entries=tuple(entries), targets=("converter",))
    source, compiled = folder / "source", folder / "compiled"
    source.mkdir(parents=True)
    compiled.mkdir()
    for name in ("config.json", *OTHER_FILES):
        (source / name).write_bytes((made.source / name).read_bytes())
    (compiled / "contract.json").write_text(json.dumps(contract_to_json(again)))
    write_shards(source, _weights(load_checkpoint(made.source), entries, order), 2)
    return Case(source, compiled)


def _entries(contract: Contract, order: Order) -> Iterator[Entry]:
    for entry in contract.entries:
        if entry.tensor.experts is None:
            yield entry
        elif entry.tensor.part in ("down", "gate"):
            yield from _stacks(entry, order)


def _stacks(entry: Entry, order: Order) -> Iterator[Entry]:
    """A layer's stacks: that of down, and that, or those, of gate and up at the place of gate."""
    tensor = entry.tensor
    for word, parts in order.parts.items():
        if (tensor.part == "down") is (parts == ("down",)):
            yield replace(entry, tensor=_stack(tensor, word, parts, order))


def _stack(tensor: Tensor, word: str, parts: tuple[str, ...], order: Order) -> Tensor:
    rows, columns = len(parts) * tensor.shape[0], tensor.shape[1]
    assert tensor.experts is not None
    prefix = tensor.path[: tensor.path.index("experts") + 1]
    return replace(
        tensor,
        path=(*prefix, word),
        parameter="",
        shape=(len(tensor.experts), *((columns, rows) if order.transposed else (rows, columns))),
        part="_".join(parts),
        experts=None,
        contracted=(1 if order.transposed else 2,),
        scale_group=".".join((*prefix, "gate_up")) if order.separate and parts != ("down",) else None,
        interleaved=order.interleaved and len(parts) > 1,
        form=Form("fp8", (128, 128)) if order.fp8 else tensor.form,
    )


def _weights(weights: Weights, entries: list[Entry], order: Order) -> Weights:
    made: Weights = {name: value for name, value in weights.items() if ".experts." not in name}
    for tensor in (entry.tensor for entry in entries):
        if not tensor.parameter:
            made |= _values(tensor, weights, order)
    return made


def _values(tensor: Tensor, weights: Weights, order: Order) -> Weights:
    prefix = ".".join(tensor.path[:-1])
    parts = order.parts[tensor.path[-1]]
    names = [[f"{prefix}.{expert}.{part}_proj.weight" for part in parts] for expert in range(tensor.shape[0])]
    values = order.stack([[plain(name, weights) for name in row] for row in names])
    if not order.fp8:
        return {tensor.name: values}
    pairs = [in_fp8_blocks(matrix.float(), power_of_two=True) for matrix in values]
    codes, scales = (torch.stack(halves) for halves in zip(*pairs, strict=True))
    return {tensor.name: codes, f"{tensor.name}_scale_inv": scales}
