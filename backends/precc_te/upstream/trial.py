"""What a worker is asked: to start a job as a user would, and say what each linear layer then runs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from precc_te.running import Foreign, running
from precc_te.upstream import arguments, models
from precc_te.upstream.wire import Job, Layout, Seen, Sighting, Stop, words_of
from precc_te.walk import REACHABLE, in_force, linears

UNCHANGED: Mapping[str, Any] = MappingProxyType({})


def try_job(job: Job) -> Seen:
    """What is in force for each linear layer in each layout, all of its ranks together."""
    os.chdir(job.folder)
    models.without_cuda()
    seen = Seen()
    for layout in job.layouts:
        try:
            _try(job, layout, seen)
        except Exception as problem:
            seen.stops.append(Stop(str(layout), words_of(problem)))
    return seen


def _try(job: Job, layout: Layout, seen: Seen) -> None:
    training: dict[str, Sighting] = {}
    evaluation: dict[str, Sighting] = {}
    for rank in range(layout.pp):
        chunks = build(job, layout, rank)
        training.update(reach(chunks))
        training.update(_unlike(chunks, 0 if layout.grouped else job.structure.experts))
        if any(linear.evaluates_apart for linear in linears(chunks)):
            for chunk in chunks:
                chunk.eval()
            evaluation.update(reach(chunks))
    seen.layouts[layout] = training
    if evaluation:
        seen.layouts[replace(layout, evaluates=True)] = training | evaluation


def build(
    job: Job, layout: Layout, rank: int, changes: Mapping[str, Any] = UNCHANGED, width: int = models.WIDTH
) -> list[Any]:
    """The model of a rank that was started with `megatron.args`; `changes` are to Megatron's configuration."""
    from megatron.core.quantization.utils import load_quantization_recipe

    words = arguments.launched(Path(job.folder), rank, layout)
    fields = arguments.parsed(words, job.structure, layout)
    path = fields.pop(arguments.RECIPE_FILE, None)
    recipe = None if path is None else load_quantization_recipe(path)
    _parse(recipe)
    models.initialize(layout, rank)
    return models.chunks(job.structure, layout, {**fields, "quant_recipe": recipe, **changes}, width)


def _parse(recipe: Any) -> None:
    """This parses every config of a recipe file, also those that no module of the model asks for."""
    from megatron.core.extensions.transformer_engine import TEQuantizationParams
    from megatron.core.quantization.quant_config import MatchContext, QuantizationConfig

    for key, config in ({} if recipe is None else recipe.configs).items():
        TEQuantizationParams.parse_from_config(QuantizationConfig(config, MatchContext("", None), key))


def _unlike(chunks: Sequence[Any], experts: int) -> Iterator[tuple[str, Sighting]]:
    """The sequential experts of the whole model for which the matchers choose another config than for the first.

    The small model has two. The names of the others are given to the same matchers, and what they choose is put over
    the first expert's layer.
    """
    from megatron.core.quantization.quant_config import MatchContext
    from megatron.core.quantization.utils import get_quant_config_or_none

    for linear in linears(chunks):
        head, first, tail = linear.local.partition(FIRST_EXPERT)
        recipe = chunks[0].config.quant_recipe
        if not first or recipe is None:
            continue
        module, before = linear.module, linear.module.te_quant_params
        chosen = recipe.match_to_config_key(MatchContext(linear.local, None))
        for expert in range(models.EXPERTS, experts):
            place = FIRST_EXPERT.replace("0", str(expert))
            local = f"{head}{place}{tail}"
            if recipe.match_to_config_key(MatchContext(local, None)) != chosen:
                module.finish_init(get_quant_config_or_none(local, recipe))
                enabled, found = in_force(module, linear.surrounding(), training=True)
                yield linear.path.replace(FIRST_EXPERT, place), _sighting(module, enabled, found)
        module.te_quant_params = before


FIRST_EXPERT = ".local_experts.0."


def reach(chunks: Sequence[Any]) -> Iterator[tuple[str, Sighting]]:
    """This runs Megatron's forward of each chunk: what was in force for each linear layer when it was reached."""
    for model in chunks:
        models.visit(model)
        numbers = {str(local): str(layer.layer_number - 1) for local, layer in enumerate(model.decoder.layers)}
        for path, module in model.named_modules():
            if hasattr(module, REACHABLE):
                yield _numbered(path, numbers), _sighting(module, *module.seen)


def _numbered(path: str, numbers: Mapping[str, str]) -> str:
    """A module's path with the global number of its decoder layer, where it has a local one."""
    words = path.split(".")
    if words[0] == "decoder":
        words[2] = numbers[words[2]]
    return ".".join(words)


def _sighting(module: Any, enabled: bool, recipe: Any) -> Sighting:
    import torch

    found = running(enabled, recipe, os.environ)
    if module.config.params_dtype is not torch.bfloat16:
        found = Foreign(f"{found}, with weights in {str(module.config.params_dtype).removeprefix('torch.')}")
    if module.weight_is_quantized:
        found = Foreign(f"{found}, on a weight that is kept quantized")
    return Sighting(found, type(recipe).__name__ == "CustomRecipe")
