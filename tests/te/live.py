"""What the tests ask of a worker beside the judge's own question. These functions run there, with Megatron loaded."""

from __future__ import annotations

import os
import types
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import precc_te
from precc.backend import Attestation, NotAttested
from precc.contract import Contract
from precc_te.running import Running
from precc_te.upstream import models
from precc_te.upstream.trial import build, reach
from precc_te.upstream.wire import Job
from precc_te.walk import linears


def match(path: str, names: list[str]) -> list[Any]:
    """The config and the parsed training recipe of each name; an error's type where Megatron raises."""
    from megatron.core.extensions.transformer_engine import TEQuantizationParams
    from megatron.core.quantization.utils import get_quant_config_or_none, load_quantization_recipe

    def answer(name: str) -> Any:
        chosen = get_quant_config_or_none(name, recipe)
        if chosen is None:
            return None
        return [chosen.config_key, asdict(TEQuantizationParams.parse_from_config(chosen).training_recipe)]

    try:
        recipe = load_quantization_recipe(path)
    except Exception as problem:
        return [type(problem).__name__] * len(names)
    return [_or_error(answer, name) for name in names]


def _or_error(function: Callable[[str], Any], name: str) -> Any:
    try:
        return function(name)
    except Exception as problem:
        return type(problem).__name__


def forward_and_walk(job: Job, training: bool = True) -> dict[str, tuple[Running | None, Running | None]]:
    """For each linear layer of a layout: what Megatron's own forward has in force, and what a walk says."""
    os.chdir(job.folder)
    models.without_cuda()
    (layout,) = job.layouts
    found: dict[str, tuple[Running | None, Running | None]] = {}
    for rank in range(layout.pp):
        chunks = build(job, layout, rank)
        for chunk in chunks:
            chunk.train(training)
        walked = {linear.path: linear.running for linear in linears(chunks)}
        seen = {path: sighting.running for path, sighting in reach(chunks)}
        found |= {path: (seen.get(path), walked.get(path)) for path in seen.keys() | walked.keys()}
    return found


def attest(
    job: Job,
    contract: Contract,
    changes: Mapping[str, Any],
    late: Mapping[str, str],
    arguments: Mapping[str, Any] | None,
    wrapped: bool,
) -> Attestation:
    """What `precc_te.attest` says of the last rank's model.

    `changes` are to Megatron's configuration, `late` to the environment once the recipe classes are defined.
    """
    os.chdir(job.folder)
    models.without_cuda()
    os.environ.update(late)
    (layout,) = job.layouts
    held = build(job, layout, layout.pp - 1, changes, contract.model.config.get("hidden_size", models.WIDTH))
    model = [types.SimpleNamespace(module=types.SimpleNamespace(module=chunk)) for chunk in held]
    args = None if arguments is None else types.SimpleNamespace(**arguments)
    try:
        return precc_te.attest(model if wrapped else held[0], contract, args=args)
    except NotAttested as refusal:
        return refusal.attestation
