"""The values behind the names: a parameter's rows to the checkpoint's tensors and back, and shards to a parameter.

Elements are moved and not changed, but for the norm of a gated delta net: the trainer, whose norms hold what is added
to one, holds it so, too, and the checkpoint as it is multiplied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from precc_converter.trainer.names import Place
from precc_converter.trainer.parameters import Member, Parameter, numbered
from precc_converter.trainer.stacks import slice_of

if TYPE_CHECKING:
    from torch import Tensor


class WrongShape(ValueError):
    """A tensor that has not the shape that its name has in this model."""

    def __init__(self, name: str, found: Sequence[int], wanted: Sequence[int], help: str = "") -> None:
        super().__init__(f"`{name}` has shape {list(found)}, in this model {list(wanted)}{help}")


class CopiesDiffer(ValueError):
    """Tensors of a checkpoint that are one parameter in the trainer, and differ."""


def to_huggingface(place: Place, tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    """This takes a gathered parameter apart into the checkpoint's tensors, contiguous, copies each for itself.

    Views where the rows lie together. Raises WrongShape.
    """
    import torch

    parameter = place.parameter
    if tuple(tensor.shape) != parameter.shape:
        raise WrongShape(numbered(parameter.name, place.expert), tensor.shape, parameter.shape, _help(parameter))
    used = tensor[: tensor.shape[0] - parameter.padding] if parameter.padding else tensor
    sizes = [member.rows // parameter.groups for member in parameter.members]
    stretches = used.reshape(parameter.groups, sum(sizes), *parameter.rest)
    pieces = torch.split(stretches, sizes, dim=1)
    for member, piece in zip(parameter.members, pieces, strict=True):
        whole = _in_checkpoint(member, piece.reshape(member.rows, *parameter.rest)).contiguous()
        whole = parameter.stacking.to_checkpoint(whole) if parameter.stacking else whole
        yield from ((numbered(name, place.expert), whole) for name in member.names)


def to_megatron(place: Place, tensors: Mapping[str, Tensor]) -> Tensor:
    """This puts the checkpoint's tensors of one place together; padding rows are zero.

    Raises KeyError for one that is missing, WrongShape, CopiesDiffer.
    """
    import torch

    parameter = place.parameter
    pieces = []
    for member in parameter.members:
        own = _agreeing([numbered(name, place.expert) for name in member.names], tensors)
        own = parameter.stacking.to_trainer(own) if parameter.stacking else own
        wanted = (member.rows, *parameter.rest)
        if tuple(own.shape) != wanted:
            raise WrongShape(numbered(member.names[0], place.expert), own.shape, wanted)
        own = _in_trainer(member, own)
        pieces.append(own.reshape(parameter.groups, member.rows // parameter.groups, *parameter.rest))
    joined = torch.cat(pieces, dim=1).reshape(-1, *parameter.rest)
    if not parameter.padding:
        return joined
    return torch.cat([joined, joined.new_zeros(parameter.padding, *parameter.rest)])


def _in_checkpoint(member: Member, rows: Tensor) -> Tensor:
    """A member's rows in the checkpoint's order; a norm in its dtype where that is wider, rounded once."""
    if member.centred:
        value = rows.float() + 1
        return value if member.dtype == "fp32" else value.to(rows.dtype)
    return member.regrouping.to_checkpoint(rows) if member.regrouping else rows


def _in_trainer(member: Member, rows: Tensor) -> Tensor:
    """The same the other way round."""
    if member.centred:
        return (rows.float() - 1).to(rows.dtype)
    return member.regrouping.to_trainer(rows) if member.regrouping else rows


def gather(place: Place, shards: Sequence[Tensor]) -> Tensor:
    """This puts a parameter's tensor-parallel shards together, in the order of their ranks.

    Each rank's `linear_fc1` is its share of gate over its share of up, so the shards are not simply concatenated. A
    parameter that is not split comes from any rank alone. Raises CopiesDiffer where shards differ that should not,
    ValueError where query groups do not divide into the ranks.
    """
    import torch

    parameter = place.parameter
    if parameter.parallel is None:
        if any(not torch.equal(shards[0], shard) for shard in shards[1:]):
            raise CopiesDiffer(f"`{numbered(parameter.name, place.expert)}` is not split, and differs between ranks")
        return shards[0]
    if parameter.parallel == "row":
        return torch.cat(list(shards), dim=1) if parameter.rest else shards[0]
    if parameter.sections:
        sizes = [rows // len(shards) for rows in parameter.sections]
        split = [torch.split(shard, sizes) for shard in shards]
        return torch.cat([piece for section in zip(*split, strict=True) for piece in section])
    if parameter.groups % len(shards) and parameter.has_query_groups:
        raise ValueError(
            f"{parameter.groups} query groups do not divide into {len(shards)} shards; gather them yourself"
        )
    if parameter.has_query_groups or parameter.parts == 1:
        return torch.cat(list(shards))
    split = [shard.chunk(parameter.parts) for shard in shards]
    return torch.cat([piece for member in zip(*split, strict=True) for piece in member])


def _agreeing(names: Sequence[str], tensors: Mapping[str, Tensor]) -> Tensor:
    import torch

    first, *copies = names
    own = slice_of(first, tensors)
    for name in copies:
        if not torch.equal(own, tensors[name]):
            raise CopiesDiffer(f"`{name}` and `{first}` are one parameter in the trainer, and differ")
    return own


def _help(parameter: Parameter) -> str:
    if parameter.name.endswith(("word_embeddings.weight", "output_layer.weight")):
        return "; if the trainer pads its vocabulary, say so with `vocabulary_rows`"
    return "; gather its shards first"
