"""Plan → artifacts: arguments, recipes and environment as text."""

from __future__ import annotations

import json
from collections.abc import Iterator

from precc.backend import CONTRACT_LINE, Artifact, Unsupported, shell_lines
from precc.contract import Contract
from precc.contract.wording import counted_names
from precc_te.environment import VARIABLES
from precc_te.forbidden import forbidden_arguments
from precc_te.modules import modules_of
from precc_te.plan import Config, Matcher, Plan, plan
from precc_te.precision import Recipe
from precc_te.rounding import CALL
from precc_te.stages import SCRIPT, recipe_path, script

ARGUMENTS = "te/megatron.args"
ENV_SHELL = "te/env.sh"
ENV_JSON = "te/env.json"
FORMAT_ARGUMENTS: dict[Recipe, tuple[str, ...]] = {
    "bf16": (),
    "nvfp4": ("--fp4-format e2m1", "--fp4-recipe nvfp4"),
    "mxfp8": ("--fp8-format e4m3", "--fp8-recipe mxfp8"),
    "blockwise": ("--fp8-format e4m3", "--fp8-recipe blockwise"),
    "tensorwise": ("--fp8-format e4m3", "--fp8-recipe tensorwise"),
}


def emit(contract: Contract) -> tuple[Artifact, ...]:
    """This writes `te/`. Raises Unsupported for what no linear layer runs, or one cannot run in two ways."""
    modules = modules_of(contract)
    refused = modules.refusals() or tuple(modules.conflicts())
    if refused:
        raise Unsupported(*refused)
    made = plan(contract)
    staged = len(made.stages) > 1
    digest = contract.digest
    recipes = tuple(
        Artifact(recipe_path(number if staged else None), recipe_text(made, matchers, contract, number))
        for number, matchers in enumerate(made.stages)
    )
    wrapper = (Artifact(SCRIPT, script(len(made.stages), digest), executable=True),) if staged else ()
    variables = made.process.variables()
    return (
        Artifact(ARGUMENTS, arguments_text(made, staged)),
        *recipes,
        *wrapper,
        Artifact(ENV_SHELL, shell_text(variables, digest)),
        Artifact(ENV_JSON, json_text(made, digest)),
    )


def arguments_text(made: Plan, staged: bool) -> str:
    """One argument a line. With a recipe for each stage, the wrapper adds its path."""
    flags = ("--first-last-layers-bf16",) if made.start or made.end else ()
    lines = (
        "--bf16",
        "--transformer-impl transformer_engine",
        *FORMAT_ARGUMENTS[made.mode],
        *flags,
        f"--num-layers-at-start-in-bf16 {made.start}",
        f"--num-layers-at-end-in-bf16 {made.end}",
        *(() if staged else ("--te-precision-config-file te_precision.yaml",)),
    )
    return "".join(f"{line}\n" for line in lines)


def recipe_text(made: Plan, matchers: tuple[Matcher, ...], contract: Contract, stage: int) -> str:
    """The YAML of one stage: the first enabled matcher wins, and the last one takes everything."""
    used = tuple(dict.fromkeys(matcher.config for matcher in matchers))
    return "\n".join(
        (
            f"# Per-module recipes of policy {json.dumps(contract.policy)} for {contract.model.name}.",
            *(
                (f"# Pipeline stage {stage} of {len(made.stages)}; layer numbers are the stage's own.",)
                if len(made.stages) > 1
                else ()
            ),
            f"{CONTRACT_LINE}{contract.digest}",
            *_rounded_lines(contract),
            "configs:",
            *map(_config_line, used),
            "matchers:  # the first that matches wins",
            *map(_matcher_line, matchers),
            "",
        )
    )


def _rounded_lines(contract: Contract) -> Iterator[str]:
    """What no recipe says: the weights that the job has to round in its forward."""
    entries = [entry for entry in contract.entries if entry.decision.train == "fake_quant"]
    if entries:
        yield f"# In BF16, and rounded by the job, which calls {CALL}:"
        yield f"#   {counted_names(entries)}"


def _config_line(config: Config) -> str:
    fields = ", ".join(f"{name}: {value}" for name, value in _recipe_fields(config))
    return f'  {config.name}: {{transformer_engine_config_type: "TEQuantizationParams", training_recipe: {{{fields}}}}}'


def _recipe_fields(config: Config) -> Iterator[tuple[str, str]]:
    if not config.precision.is_quantized:
        return
    width = "fp4" if config.precision.recipe == "nvfp4" else "fp8"
    yield f"{width}_quantization_recipe", '"custom"' if config.factory else f'"{config.precision.recipe}"'
    if config.factory:
        yield "custom_recipe_factory", f'"{config.factory}"'
    elif width == "fp8":
        yield "fp8_format", '"e4m3"'
    if config.forced:
        yield "override_nonquantized_autocast", "true"


def _matcher_line(matcher: Matcher) -> str:
    fields = f'type: glob, enabled: true, pattern: "{matcher.pattern}", config: {matcher.config.name}'
    return f"  {matcher.label}: {{{fields}}}"


def shell_text(variables: dict[str, str], digest: str) -> str:
    """The environment as a script to source, in each process before TransformerEngine is imported."""
    return "".join(
        (
            "# Source this before TransformerEngine is imported: it reads these once.\n",
            f"{CONTRACT_LINE}{digest}\n",
            *shell_lines(variables, (name for name in VARIABLES if name not in variables)),
        )
    )


def json_text(made: Plan, digest: str) -> str:
    """The environment for launchers that set it themselves, and the arguments that the job must not have."""
    variables = made.process.variables()
    content = {
        "digest": digest,
        "set": variables,
        "unset": [name for name in VARIABLES if name not in variables],
        "parameter_gather": "off",
        "forbidden_arguments": [each.argument for each in forbidden_arguments(made.mode)],
    }
    return json.dumps(content, indent=2) + "\n"
