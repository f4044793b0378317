"""Trainers and contracts that the tests of live export start from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from functools import cache

import torch
from converter.models import model
from torch import Tensor

from precc import pipeline
from precc.contract import Contract
from precc.graph.model import ModelGraph
from precc.resolve.bind import bind
from precc.source import SourceFile
from precc_converter.conversion.group import DTYPES, outputs_of
from precc_converter.conversion.units import units_of
from precc_converter.live import LiveExporter, Session
from precc_converter.live.arrivals import arrivals_of
from precc_converter.trainer import Place, Spelling, TrainerNames
from precc_converter.trainer.stacks import slice_of
from precc_converter.trainer.values import to_megatron

POLICIES: dict[str, str] = {
    "mixed": "default: mxfp8\n@mla?: bf16\n@routed_experts?: nvfp4 per_token\n",
    "nvfp4": "default: weight nvfp4, train bf16\n@mla?: bf16\nlayers[0]: bf16\n",
    "fp8 blocks": "default: fp8_block\n@mla?: bf16\n",
    "fp8 tensors": "default: fp8\n@mla?: bf16\n",
    "int4": "@routed_experts?, @dense_mlp?: weight int4 group 32, train bf16\n",
    "one expert apart": "default: mxfp8\nexperts.0.*?: bf16\n@mla?: bf16\n",
}

Stored = dict[str, tuple[torch.dtype, tuple[int, ...], bytes]]


@cache
def contract(policy: str, family: str) -> Contract:
    """The contract of one of the policies for a small model, whatever an engine says of it."""
    return bound(POLICIES[policy], model(family))


def bound(policy: str, graph: ModelGraph) -> Contract:
    """The contract of a policy text for a graph."""
    read, found = pipeline.read_policy(SourceFile("p.prec", policy))
    assert not [finding.message for finding in found if finding.is_error]
    return pipeline.Settings().apply(bind(read, graph), ("converter",)).contract


def opened(made: Contract) -> Session:
    """A session that is entered and never left: what is looked at comes before its end."""
    return ExitStack().enter_context(LiveExporter(made).session(step=0))


@cache
def weights(made: Contract, seed: int = 0) -> Mapping[str, Tensor]:
    """Every tensor of the model under the checkpoint's names, as a trainer holds it; copies are equal."""
    random = torch.Generator().manual_seed(seed)
    tensors = {
        name: torch.randn(stored.shape, generator=random).to(DTYPES[stored.dtype])
        for name, (_, stored) in arrivals_of(made).sources.items()
    }
    for place in TrainerNames(made.model).places():
        for member in place.parameter.members:
            first, *copies = (name.replace("{e}", str(place.expert)) for name in member.names)
            tensors |= dict.fromkeys(copies, tensors[first]) if copies else {}
            if member.centred:  # numbers that have as many bits when they are one less
                tensors[first] = 1 + (tensors[first].clamp(-2, 2) * 32).round() / 128
    return tensors


def in_megatron(
    graph: ModelGraph, tensors: Mapping[str, Tensor], spelling: Spelling | None = None
) -> dict[str, Tensor]:
    """The same tensors as Megatron-Core's parameters; those of a tower, which is no GPTModel's, as they are."""
    names = TrainerNames(graph, spelling)
    held = {names.written(place): to_megatron(place, tensors) for place in names.places()}
    return held | {name: tensor for name, tensor in tensors.items() if names.find_stored(name) is None}


def spelled_either_way(
    made: Contract, tensors: Mapping[str, Tensor], spelling: Spelling, in_checkpoint: Iterable[Place]
) -> dict[str, Tensor]:
    """Some parameters under the checkpoint's names, the others under Megatron-Core's."""
    mixed = in_megatron(made.model, tensors, spelling)
    names = TrainerNames(made.model, spelling)
    for place in in_checkpoint:
        del mixed[names.written(place)]
        mixed |= {name: slice_of(name, tensors) for name in place.names()}
    return mixed


def converted(made: Contract, tensors: Mapping[str, Tensor]) -> Stored:
    """What the converter's own function makes of a checkpoint of these tensors."""
    outputs: dict[str, Tensor] = {}
    for unit in units_of(made):
        outputs |= outputs_of(unit, {name: tensors[name] for name in unit.source_names})
    return stored(outputs.items())


def stored(tensors: Iterable[tuple[str, Tensor]]) -> Stored:
    """Tensors as what is compared: dtype, shape and bytes. Fails on a name that comes twice."""
    found: Stored = {}
    for name, tensor in tensors:
        assert name not in found
        flat = tensor.contiguous().reshape(-1).view(torch.uint8)
        found[name] = (tensor.dtype, tuple(tensor.shape), flat.numpy().tobytes())
    return found
