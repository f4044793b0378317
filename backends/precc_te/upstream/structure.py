"""What of a contract the engine is asked about: its model's structure, and the layouts to build it in."""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract
from precc.syntax.words import Role
from precc_te.indexers import indexed_layers, skipping_layers
from precc_te.modules import modules_of
from precc_te.plan import global_mode, layering
from precc_te.upstream.wire import Layout, Structure


def structure_of(contract: Contract) -> Structure:
    """This reads the roles and parts of tensors, none of Megatron's names."""
    text = [tensor for tensor in contract.tensors if tensor.outer not in (Role.VISION, Role.AUDIO)]
    routed = {tensor.layer for tensor in text if tensor.role is Role.ROUTED_EXPERTS and tensor.layer is not None}
    linear = {tensor.layer for tensor in text if tensor.role is Role.LINEAR_ATTENTION}
    parts = {tensor.part for tensor in text}
    return Structure(
        experts_in=tuple(layer in routed for layer in range(contract.model.layers)),
        experts=contract.model.expert_count // max(1, contract.train.ep),
        shared=any(tensor.role is Role.SHARED_EXPERTS for tensor in text),
        latent="kv_b" in parts,
        query_rank="q_a" in parts,
        indexer_in=indexed_layers(text),
        mtp=contract.model.mtp_layers,
        linear_in=tuple(layer in linear for layer in range(contract.model.layers)) if linear else (),
    )


def layouts_of(contract: Contract) -> tuple[Layout, ...]:
    """The stated layout, with grouped and with sequential experts, unless its layers do not divide.

    Where no recipe depends on a layer's number in its stage, also one, two and four stages and two virtual chunks,
    as far as the layers divide, no stage begins with a layer that reuses the choice of one in another stage, and
    Megatron allows as many BF16 layers a stage under FP8.
    """
    modules = modules_of(contract)
    found = layering(modules.precisions, contract.model.layers)
    stated = Layout(contract.train.pp, contract.train.vpp)
    others = [] if found.exceptions else [Layout(), Layout(2), Layout(4), Layout(2, 2)]
    if global_mode(set(modules.quantized)) not in ("bf16", "nvfp4"):
        kept = max(found.start, found.end)
        others = [each for each in others if kept <= contract.model.layers // each.pp]
    skipping = skipping_layers(contract.model)
    divided = (each for each in (stated, *others) if _divides(each, contract.model.layers))
    chosen = dict.fromkeys(each for each in divided if _firsts(each, contract.model.layers).isdisjoint(skipping))
    sparse = contract.model.expert_count > 0
    return tuple(layout for number, each in enumerate(chosen) for layout in _kinds(each, number, sparse))


def _divides(layout: Layout, layers: int) -> bool:
    return layout.pp <= layers and (layout.vpp == 1 or layers % (layout.pp * layout.vpp) == 0)


def _firsts(layout: Layout, layers: int) -> set[int]:
    """The first layer of each stage, or of each virtual chunk."""
    each = layers // (layout.pp * layout.vpp)
    return {number * each for number in range(layout.pp * layout.vpp)}


def _kinds(layout: Layout, number: int, sparse: bool) -> Iterator[Layout]:
    """Both kinds of experts for the first layout, then in turn."""
    for grouped in (True, False) if sparse and number == 0 else (not sparse or number % 2 == 0,):
        yield Layout(layout.pp, layout.vpp, grouped)
