"""The trainer's parameters of a model, each with the checkpoint's tensors that lie in it and how."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from precc.graph.model import EXPERT, ModelGraph, Parallel, Tensor
from precc.syntax.words import Role
from precc_converter.trainer.gating import Gating
from precc_converter.trainer.regrouping import Regrouping
from precc_converter.trainer.slots import Slot, Slots
from precc_converter.trainer.stacks import SLICE, Stacking, sliced, stacked_weight

_QUERY_KEY_VALUE = (".linear_qkv.weight", ".linear_qkv.bias")
TOWERS = frozenset({Role.VISION, Role.AUDIO})
_VOCABULARY = ("embedding.word_embeddings.weight", "output_layer.weight")


@dataclass(frozen=True, slots=True)
class Member:
    """Rows of a parameter, and the checkpoint's names for them: the tensor's own first, then its copies.

    `regrouping` is the order of rows that differs. A norm is `centred` whose numbers are one less in the trainer: of a
    checkpoint in which all norms but this one hold what is added to one. `dtype` is that of the checkpoint.
    """

    rows: int
    names: tuple[str, ...]
    regrouping: Regrouping | None = None
    centred: bool = False
    dtype: str = "bf16"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of the trainer, or the same one of every expert of a layer (`{e}` in all its names).

    Axis 0 is `groups` equal stretches, one a query group, in each of which the members' rows follow one another;
    one stretch for anything else than the fused q, k and v. `rest` are the other axes. `padding` are rows at the
    end that the checkpoint does not have: those that fill up a vocabulary. `parallel` is how tensor parallelism (for
    experts: expert tensor parallelism) splits it: a `column` parallel one along axis 0, a `row` one along axis 1.
    `stacking` is how its slice of a tensor differs that holds the same parameter of all experts. `sections` are the
    rows that each rank has its share of by themselves, where these are neither members of one size nor all rows.
    """

    name: str
    members: tuple[Member, ...]
    rest: tuple[int, ...] = ()
    groups: int = 1
    experts: range | None = None
    alone: str = ""
    padding: int = 0
    parallel: Parallel | None = None
    stacking: Stacking | None = None
    sections: tuple[int, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape in the trainer, shards gathered."""
        return (sum(member.rows for member in self.members) + self.padding, *self.rest)

    @property
    def parts(self) -> int:
        """How many weights share its rows."""
        return self.stacking.parts if self.stacking else len(self.members)

    @property
    def has_query_groups(self) -> bool:
        """Whether it is the fused query, key and value."""
        return self.name.endswith(_QUERY_KEY_VALUE)

    @property
    def elements(self) -> int:
        return prod(self.shape) * (1 if self.experts is None else len(self.experts))


def parameters_of(model: ModelGraph, vocabulary_rows: int | None = None) -> tuple[Parameter, ...]:
    """This lists the trainer's parameters in checkpoint order; every tensor of the language model is a member of
    one of them.

    `vocabulary_rows` is the trainer's padded vocabulary (`--make-vocab-size-divisible-by`); None: not padded. Raises
    UnmappedTensor for a tensor that the trainer has no known name for, ValueError for fewer rows than the vocabulary.
    """
    slots, gating = Slots(model), Gating.of(model)
    found: dict[str, list[tuple[Slot, Tensor]]] = {}
    for tensor in _whole(model):
        slot = slots.of(tensor)
        found.setdefault(slot.name, []).append((slot, tensor))
    made = (_parameter(held, gating) for held in found.values())
    return tuple(_padded(parameter, vocabulary_rows) for parameter in made)


def _whole(model: ModelGraph) -> list[Tensor]:
    """The tensors, with the ranges of experts that a policy told apart put together again; towers are no GPTModel's."""
    together: dict[tuple[str, ...], Tensor] = {}
    for tensor in model.tensors:
        if tensor.outer in TOWERS:
            continue
        key = (*tensor.path, tensor.parameter)
        known = together.get(key)
        if known is not None and known.experts is not None and tensor.experts is not None:
            start = min(known.experts.start, tensor.experts.start)
            tensor = known.narrowed(range(start, max(known.experts.stop, tensor.experts.stop)))
        together[key] = tensor
    return list(together.values())


def _parameter(held: list[tuple[Slot, Tensor]], gating: Gating) -> Parameter:
    slot, tensor = held[0]
    if stacked_weight(tensor):
        return _of_stack(slot, tensor)
    orders = sorted({slot.order for slot, _ in held})
    members = tuple(_member([tensor for slot, tensor in held if slot.order == order], gating) for order in orders)
    return Parameter(
        name=slot.name,
        members=members,
        rest=tensor.shape[1:],
        groups=gating.groups if slot.name.endswith(_QUERY_KEY_VALUE) else 1,
        experts=tensor.experts,
        alone=slot.alone,
        parallel=tensor.parallel,
        sections=gating.sections(tensor),
    )


def _of_stack(slot: Slot, tensor: Tensor) -> Parameter:
    (rows, *rest), stacking = sliced(tensor)
    members = (Member(rows, (template(tensor) + SLICE,)),)
    experts = range(tensor.shape[0])
    parallel = tensor.parallel
    return Parameter(slot.name, members, tuple(rest), experts=experts, parallel=parallel, stacking=stacking)


def _member(copies: list[Tensor], gating: Gating) -> Member:
    first = copies[0]
    names = tuple(template(tensor) for tensor in copies)
    centred = first.role is Role.NORM and gating.is_delta_net(first)
    return Member(first.shape[0], names, gating.regrouping(first), centred, first.dtype)


def template(tensor: Tensor) -> str:
    """A tensor's stored name, an expert's number left open as `{e}`."""
    return ".".join((*tensor.path, tensor.parameter) if tensor.parameter else tensor.path)


def _padded(parameter: Parameter, rows: int | None) -> Parameter:
    if rows is None or parameter.name not in _VOCABULARY:
        return parameter
    padding = rows - parameter.shape[0]
    if padding < 0:
        raise ValueError(f"a padded vocabulary of {rows} rows is smaller than the model's, {parameter.shape[0]}")
    return replace(parameter, padding=padding)


def numbered(name: str, expert: int | None) -> str:
    """A name with its expert's number filled in."""
    return name if expert is None else name.replace(EXPERT, str(expert))
