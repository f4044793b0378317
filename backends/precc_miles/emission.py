"""Run → artifacts: arguments, recipes and environment as text."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator

from precc.backend import CONTRACT_LINE, Artifact, shell_lines
from precc.contract import Contract
from precc_miles.choosing import choose
from precc_miles.environment import VARIABLES
from precc_miles.export_arguments import export_lines
from precc_miles.forms import NVFP4, Form
from precc_miles.profile import ENGINES
from precc_miles.server_arguments import DRAFT, server_lines
from precc_miles.stages import Run
from precc_miles.trainer import Matcher, Recipe, Training

CONVERT = "miles/convert.args"
TRAIN = "miles/train.args"
EXPORT = "miles/export.args"
ROLLOUT = "miles/rollout.args"
RECIPES = "miles/te_precision.yaml"
ENV_SHELL = "miles/env.sh"
ENV_JSON = "miles/env.json"

INLINE = "base64:"
"""How the fork's `--te-precision-config-file` begins where the text itself follows."""


def emit(contract: Contract) -> tuple[Artifact, ...]:
    """This writes `miles/`. Without a quantized tensor there is nothing to convert and no recipe."""
    run = choose(contract)
    recipes = recipes_text(run.training, contract) if run.training.matchers else None
    texts = {
        CONVERT: _text(convert_lines(run)),
        TRAIN: _text(train_lines(run.training, recipes)),
        EXPORT: _text(export_lines(run)),
        ROLLOUT: _text(server_lines(contract, run)),
        RECIPES: recipes or "",
        ENV_SHELL: shell_text(run, contract.digest),
        ENV_JSON: json_text(run, contract.digest),
    }
    return tuple(Artifact(path, text) for path, text in texts.items() if text)


def _text(lines: Iterator[str]) -> str:
    """One argument a line, and no comment, so that it can stand in a command line."""
    return "".join(f"{line}\n" for line in lines)


def convert_lines(run: Run) -> Iterator[str]:
    """The tool, then its arguments: counts are written where there are any to write, since zero is its default."""
    made = run.conversion
    if made is None:
        return
    yield f"tools/{made.form.tool}"
    yield from made.form.options
    if made.form.counts:
        yield f"--num-layers-at-start-in-bf16 {made.start}"
        yield f"--num-layers-at-end-in-bf16 {made.end}"
    if made.exceptions:
        yield f"--extra-high-precision-layers-hf {' '.join(made.exceptions)}"


def train_lines(training: Training, recipes: str | None) -> Iterator[str]:
    """Megatron's arguments. Both counts stand there, also without their flag: its defaults are 1 and 1."""
    yield "--bf16"
    yield "--transformer-impl transformer_engine"
    yield from training.form.trainer if training.form else ()
    if training.flagged:
        yield "--first-last-layers-bf16"
    yield f"--num-layers-at-start-in-bf16 {training.start}"
    yield f"--num-layers-at-end-in-bf16 {training.end}"
    if recipes is not None:
        yield f"--te-precision-config-file {INLINE}{b64encode(recipes.encode()).decode()}"


# --- recipes -----------------------------------------------------------------------------------------


def recipes_text(training: Training, contract: Contract) -> str:
    """The YAML: the first enabled matcher wins, and the last one takes everything."""
    used = dict.fromkeys(matcher.recipe for matcher in training.matchers)
    return "\n".join(
        (
            f"# Per-module recipes of policy {json.dumps(contract.policy)} for {contract.model.name}.",
            f"{CONTRACT_LINE}{contract.digest}",
            "configs:",
            *map(_config_line, used),
            "matchers:  # the first that matches wins",
            *map(_matcher_line, training.matchers),
            "",
        )
    )


def _config_line(recipe: Recipe) -> str:
    fields = ", ".join(_recipe_fields(recipe))
    return (
        f'  {_name(recipe)}: {{transformer_engine_config_type: "TEQuantizationParams", training_recipe: {{{fields}}}}}'
    )


def _recipe_fields(recipe: Recipe) -> Iterator[str]:
    form = recipe.form
    if form is None:
        return
    field, word = form.recipe
    yield f'{field}: "{word}"'
    if form is not NVFP4:
        yield 'fp8_format: "e4m3"'
    if recipe.forced:
        yield "override_nonquantized_autocast: true"


def _name(recipe: Recipe) -> str:
    name = _form_name(recipe.form)
    return f"{name}_in_mtp" if recipe.forced else name


def _form_name(form: Form | None) -> str:
    return "bf16" if form is None else form.name


def _matcher_line(matcher: Matcher) -> str:
    fields = f'type: glob, enabled: true, pattern: "{matcher.pattern}", config: {_name(matcher.recipe)}'
    return f"  {matcher.label}: {{{fields}}}"


# --- environment -------------------------------------------------------------------------------------


def shell_text(run: Run, digest: str) -> str:
    """The environment as a script to source, before anything of Miles starts."""
    variables = run.variables
    return "".join(
        (
            "# Source this for the converter too: Miles' quantizers read the same variables as the trainer's.\n",
            f"{CONTRACT_LINE}{digest}\n",
            *shell_lines(variables, (name for name in VARIABLES if name not in variables)),
        )
    )


def json_text(run: Run, digest: str) -> str:
    """The same for a launcher that sets it itself, such as a Ray job's `env_vars`; and the profile that it is for."""
    content = {
        "digest": digest,
        "profile": {engine: versions[0] for engine, versions in ENGINES.items()},
        "set": dict(run.variables),
        "unset": [name for name in VARIABLES if name not in run.variables],
        "parameter_gather": "off",
        "forbidden_arguments": [] if run.drafts else [DRAFT],
    }
    return json.dumps(content, indent=2) + "\n"
