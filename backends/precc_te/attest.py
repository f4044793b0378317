"""What runs is what was compiled: a built Megatron model, and its process, against a contract.

    import precc, precc_te
    precc_te.attest(model, precc.load_contract("out/contract.json"))

after the model is built and before the first step, on every rank. Nothing of the model is changed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from precc.backend import Attestation, NotAttested, installed_versions
from precc.contract import Contract
from precc.contract.wording import counted_names, listed
from precc.diagnostics import Diagnostic, error
from precc.records import record
from precc_te import rounding, walk
from precc_te.addresses import Addresses
from precc_te.emission import FORMAT_ARGUMENTS
from precc_te.environment import FAST_MATH, OTHER_VARIABLES, RECIPE_VARIABLES
from precc_te.forbidden import forbidden_arguments
from precc_te.modules import modules_of
from precc_te.names import Module
from precc_te.plan import Plan, needs_factory, plan
from precc_te.precision import TePrecision
from precc_te.running import Running, default

CODE = "P511"
DISTRIBUTIONS = {"megatron_core": "megatron-core", "te": "transformer-engine"}

_FIELDS = {"--fp8-param-gather": "fp8_param", "--fp4-param-gather": "fp4_param"}
"""Arguments whose field in Megatron's configuration has another name."""


def attest(model: Any, contract: Contract, *, args: Any = None) -> Attestation:
    """This compares what is in force in a live process with a contract, for the linear layers that this rank holds.

    `model` is a GPTModel, or the list of a rank's virtual chunks, wrapped or not. `args` is Megatron's namespace of
    arguments; by default the one that it was initialised with, if any. The answer is the record for the run's
    evidence. Raises NotAttested, with all differences, where something would run otherwise, TypeError for no model.
    """
    chunks = walk.peeled(model)
    made = plan(contract)
    linears = tuple(walk.linears(chunks))
    findings = (
        *_model(chunks, contract),
        *_linears(linears, chunks, contract),
        *rounding.elsewhere(chunks, linears),
        *_mode(chunks[0].config, made),
        *_recipes(contract, made),
        *_variables(made),
        *_arguments(made, [chunk.config for chunk in chunks], _initialised() if args is None else args),
    )
    found = Attestation("te", contract.digest, installed_versions(DISTRIBUTIONS), len(linears), findings)
    if findings:
        raise NotAttested(found)
    return found


def _initialised() -> Any:
    """Megatron's own arguments, where its training code is there and was initialised; else None."""
    try:
        from megatron.training.global_vars import get_args

        return get_args()
    except (ImportError, AssertionError):
        return None


def _model(chunks: Sequence[Any], contract: Contract) -> Iterator[Diagnostic]:
    """Whether it is a model of the contract's depth and width."""
    config, graph = chunks[0].config, contract.model
    facts = {
        "decoder layers": (config.num_layers, graph.layers),
        "routed experts": (getattr(config, "num_moe_experts", None) or 0, graph.expert_count),
        "hidden size": (config.hidden_size, graph.config.get("hidden_size", config.hidden_size)),
    }
    for what, (has, wants) in facts.items():
        if has != wants:
            yield error(
                CODE,
                f"the model has {has} {what}, and the contract's, {graph.name}, {wants}",
                help="load the contract that was compiled for this model",
            )


def _linears(linears: Sequence[walk.Linear], chunks: Sequence[Any], contract: Contract) -> Iterator[Diagnostic]:
    addresses = Addresses(contract, walk.mtp_inner(chunks))
    seen: dict[Module, list[walk.Linear]] = {}
    for linear in linears:
        module = addresses.module(linear.path)
        if module is None:
            yield error(CODE, f"`{linear.local}` runs as {linear.running}; the contract has no tensor there")
        else:
            seen.setdefault(module, []).append(linear)
    yield from _differences(seen, addresses)
    yield from rounding.differences(seen, addresses)
    yield from _absent(seen, addresses, walk.held_layers(chunks))


@record
class _Group:
    """What linear layers have in common that share a finding: their place but for numbers, and both precisions."""

    suffix: str
    runs: str
    wanted: TePrecision


def _differences(seen: Mapping[Module, Sequence[walk.Linear]], addresses: Addresses) -> Iterator[Diagnostic]:
    groups: dict[_Group, list[tuple[Module, walk.Linear]]] = {}
    for module, linears in seen.items():
        wanted = addresses.modules.precisions[module]
        runs = ((linear, running, how) for linear in linears for running, how in _runnings(linear))
        wrong = next(((linear, f"{running}{how}") for linear, running, how in runs if running != wanted), None)
        if wrong is not None:
            groups.setdefault(_Group(module.suffix, wrong[1], wanted), []).append((module, wrong[0]))
    for group, held in groups.items():
        entries = [entry for module, _ in held for entry in addresses.entries[module]]
        others = f" (and {len(held) - 1} more layers)" if len(held) > 1 else ""
        yield error(
            CODE,
            f"`{held[0][1].local}`{others} runs as {group.runs}; the contract says {group.wanted} for "
            f"{counted_names(entries)}",
            entries[0].span,
            help="start with the emitted arguments, recipe file and environment",
        )


def _runnings(linear: walk.Linear) -> Iterator[tuple[Running, str]]:
    yield linear.running_in(True), ""
    if linear.evaluates_apart:
        yield linear.running_in(False), " in evaluation"


def _absent(
    seen: Mapping[Module, object], addresses: Addresses, held: tuple[frozenset[int], frozenset[int]]
) -> Iterator[Diagnostic]:
    """What the contract has in the layers of this rank, and the model has not."""
    missing = [
        entry
        for module, entries in addresses.entries.items()
        if module not in seen and walk.is_held(module, held)
        for entry in entries
    ]
    if missing:
        yield error(CODE, f"the model has no linear layer for {counted_names(missing)}, which the contract decides")


def _mode(config: Any, made: Plan) -> Iterator[Diagnostic]:
    """Whether the engine-wide mode, which surrounds the layers and pads their experts, is the contract's."""
    held = [str(getattr(config, f"{width}_recipe")) for width in ("fp4", "fp8") if getattr(config, width)]
    has = listed([word.rpartition(".")[2] for word in held]) or "bf16"
    if has != made.mode:
        words = " ".join(FORMAT_ARGUMENTS[made.mode]) or "neither --fp4-format nor --fp8-format"
        yield error(CODE, f"the engine-wide mode is {has}, and the contract's {made.mode}", help=f"start with {words}")


def _recipes(contract: Contract, made: Plan) -> Iterator[Diagnostic]:
    """The recipe classes' real defaults, which they took from the environment when they were imported."""
    recipes = _recipe_module()
    if recipes is None:
        return
    for wanted in modules_of(contract).quantized:
        if needs_factory(wanted, made.process):
            continue
        found = default(recipes, wanted.recipe, os.environ)
        if found != wanted:
            yield error(
                CODE,
                f"TransformerEngine's {wanted.recipe} recipe is {found} in this process; the contract says {wanted}: "
                f"{_environment(made)}",
                help="source te/env.sh before anything imports transformer_engine",
            )


def _recipe_module() -> Any:
    try:
        from transformer_engine.common import recipe
    except ImportError:
        return None
    return recipe


def _environment(made: Plan) -> str:
    """The variables that are now otherwise than `env.sh` leaves them."""
    wanted = made.process.variables()
    wrong = [name for name in RECIPE_VARIABLES if os.environ.get(name) != wanted.get(name)]
    if not wrong:
        return "the variables are right now, and were not when it was imported"
    return listed([f"{name} is {_said(os.environ.get(name))}, not {_said(wanted.get(name))}" for name in wrong])


def _said(value: str | None) -> str:
    return "unset" if value is None else value


def _variables(made: Plan) -> Iterator[Diagnostic]:
    """Variables that are read at every step, or by what no recipe shows."""
    wanted = made.process.variables()
    if made.mode == "nvfp4" and os.environ.get(FAST_MATH, "0") != wanted.get(FAST_MATH, "0"):
        yield error(CODE, f"{FAST_MATH} is {os.environ[FAST_MATH]}: kernels take approximate reciprocals")
    for name in OTHER_VARIABLES:
        if name in os.environ:
            yield error(CODE, f"{name} is {os.environ[name]}; the contract needs it unset", help="source te/env.sh")


def _arguments(made: Plan, configs: Sequence[Any], args: Any) -> Iterator[Diagnostic]:
    """What defeats the recipes, in the arguments or in the model's own configuration."""
    for each in forbidden_arguments(made.mode):
        name = each.argument.removeprefix("--").replace("-", "_")
        field = _FIELDS.get(each.argument, name)
        if getattr(args, name, False) or any(getattr(config, field, False) for config in configs):
            message = f"under {each.argument} Megatron does not run this contract: {each.why}"
            yield error("P702", message, help=f"leave {each.argument} out")
