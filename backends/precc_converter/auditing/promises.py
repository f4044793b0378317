"""The contract as what has to stand in a checkpoint: every weight, under the names of its stored tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from precc.contract import Contract, Entry
from precc.formats import FORMATS, Quantization
from precc.graph.headers import Stored
from precc.graph.model import EXPERT
from precc_converter.written import STORED_NAMES, StoredTensor, Written, parts_stacks, written


@dataclass(frozen=True, slots=True)
class Promise:
    """One weight: the module that it stands in, and what is stored there for it, by the last word of its name.

    `shape` is that of its numbers, whatever it is packed into. `group` names those with the same NVFP4 outer scale.
    """

    module: str
    own: str
    weight: Quantization
    shape: tuple[int, ...]
    stored: Mapping[str, Stored]
    group: str | None = None

    def name(self, word: str) -> str:
        """The name of what is stored for it under a word."""
        return f"{self.module}.{word}" if self.module else word

    @property
    def names(self) -> Iterator[str]:
        return map(self.name, self.stored)

    @property
    def outer_scale(self) -> str | None:
        """The name of its outer scale if it shares one."""
        return self.name(STORED_NAMES[self.weight.format]["outer_scale"]) if self.group else None


def promises_of(contract: Contract) -> Iterator[Promise]:
    """Every weight of a contract; experts are counted out, what they have in common is worked out once."""
    apart = parts_stacks(contract)
    for entry in contract.entries:
        made = written(entry, contract.model, apart)
        yield from _stacked(entry, made) if made.stack else _single(entry, made)


def _single(entry: Entry, made: Written) -> Iterator[Promise]:
    tensor = entry.tensor
    own = tensor.parameter or tensor.path[-1]
    stored = {output.beside or own: _stored(output) for output in made.outputs}
    experts = tensor.experts if tensor.experts is not None else (None,)
    for name, expert in zip(tensor.modules(), experts, strict=True):
        module = name if tensor.parameter else name.rpartition(".")[0]
        group = made.group and made.group.replace(EXPERT, str(expert))
        yield Promise(module, own, made.weight, tensor.shape, stored, group)


def _stacked(entry: Entry, made: Written) -> Iterator[Promise]:
    """The weights of each expert of a stack that is taken apart."""
    assert made.stack is not None
    parent = ".".join(entry.tensor.path[:-1])
    by_part: dict[str, dict[str, Stored]] = {}
    for output in made.outputs:
        _, part, word = output.beside.rsplit(".", 2)
        by_part.setdefault(part, {})[word] = _stored(output)
    shape = _matrix(entry, made)
    for expert in range(made.stack.experts):
        for part, stored in by_part.items():
            group = _group(made, parent)
            yield Promise(
                f"{parent}.{expert}.{part}", "weight", made.weight, shape, stored, group and f"{group}.{expert}"
            )


def _matrix(entry: Entry, made: Written) -> tuple[int, ...]:
    """The shape of one weight of a stack: rows of one part, columns along the contraction axis."""
    assert made.stack is not None
    _, *sides = entry.tensor.shape
    axis = entry.tensor.contraction - 1
    return sides[1 - axis] // len(made.stack.parts), sides[axis]


def _group(made: Written, parent: str) -> str | None:
    """Parts of one stack share their outer scale, expert by expert; stacks do that the contract says so of."""
    assert made.stack is not None
    blocks = FORMATS[made.weight.format].outer_scale and made.weight.block is not None
    return made.group or (parent if blocks and len(made.stack.parts) > 1 else None)


def _stored(output: StoredTensor) -> Stored:
    return Stored(output.dtype, output.shape)
