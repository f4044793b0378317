"""Artifacts → run → what each stage does with each tensor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from precc.backend import Reading, malformed, text_of
from precc.contract import Contract
from precc_miles.choosing import is_interleaved
from precc_miles.converter import Conversion
from precc_miles.emission import CONVERT, ENV_JSON, ENV_SHELL, EXPORT, RECIPES, ROLLOUT, TRAIN
from precc_miles.export_arguments import CHECKPOINT_NAMES, MODE, NAMES, RAW
from precc_miles.exporter import Export
from precc_miles.forms import FORMS, TOOLS, Form
from precc_miles.reading.arguments import Arguments, Grammar, parse
from precc_miles.reading.environment import read_environment
from precc_miles.reading.recipes import read_recipes
from precc_miles.server_arguments import CACHES, PREFIX, shared_apart
from precc_miles.stages import Run
from precc_miles.trainer import Training

FLAG, START, END = "--first-last-layers-bf16", "--num-layers-at-start-in-bf16", "--num-layers-at-end-in-bf16"

_CONVERT = Grammar(
    values={START: "0", END: "0", "--strategy": "block"},
    lists=frozenset({CHECKPOINT_NAMES, "--block-size"}),
)
_TRAIN = Grammar(
    switches=frozenset({"--bf16", FLAG}),
    values={
        "--transformer-impl": "transformer_engine",
        "--fp8-format": None,
        "--fp8-recipe": "delayed",
        "--fp4-format": None,
        "--fp4-recipe": "nvfp4",
        START: "1",
        END: "1",
        "--te-precision-config-file": None,
    },
)
_EXPORT = Grammar(values={MODE: RAW}, lists=frozenset({NAMES, CHECKPOINT_NAMES}))
_FUSION_OFF = f"{PREFIX}disable-shared-experts-fusion"
_ROLLOUT = Grammar(
    switches=frozenset({_FUSION_OFF, f"{PREFIX}enable-dp-attention"}),
    values={
        f"{PREFIX}dtype": "auto",
        f"{PREFIX}kv-cache-dtype": "auto",
        f"{PREFIX}quantization": None,
        f"{PREFIX}moe-runner-backend": "auto",
        "--rollout-num-gpus-per-engine": "1",
        f"{PREFIX}ep-size": "1",
        f"{PREFIX}dp-size": "1",
    },
)
"""What may stand in each file, with the defaults of who reads it."""


BECAUSE = f"{CONVERT} (converter, rollout), {TRAIN} (trainer, export) and {EXPORT} (export)"


def read_back(contract: Contract, artifacts: Mapping[str, str]) -> tuple[Reading, ...]:
    """What `miles/` makes of each tensor on each stage."""
    run = read_run(contract, artifacts)
    found = run.stages(contract)
    server = parse(ROLLOUT, text_of(artifacts, ROLLOUT), _ROLLOUT)
    _check_server(server, run.conversion, contract)
    if shared_apart(contract.tensors, found) and _FUSION_OFF not in server.switches:
        raise malformed(ROLLOUT, f"without `{_FUSION_OFF}` shared experts are folded into the routed ones")
    return tuple(Reading(staged, BECAUSE) for staged in found)


def read_run(contract: Contract, artifacts: Mapping[str, str]) -> Run:
    """The run that files describe. Raises Unsupported (P502) for what none of the engines would run as a contract."""
    conversion = _conversion(artifacts.get(CONVERT, ""))
    said = parse(TRAIN, text_of(artifacts, TRAIN), _TRAIN)
    training = _training(said, artifacts.get(RECIPES), contract)
    export = _export(parse(EXPORT, text_of(artifacts, EXPORT), _EXPORT), training, conversion, contract)
    variables, drafts = read_environment(text_of(artifacts, ENV_SHELL), text_of(artifacts, ENV_JSON), contract.digest)
    return Run(training, conversion, export, variables, drafts)


def _conversion(text: str) -> Conversion | None:
    if not text.split():
        return None
    tool, _, rest = text.strip().partition("\n")
    form = TOOLS.get(tool.removeprefix("tools/"))
    if form is None or not tool.startswith("tools/"):
        raise malformed(CONVERT, f"{tool} is no converter that a contract names")
    found = parse(CONVERT, rest, _CONVERT)
    given = (found.values["--strategy"], found.words("--block-size"))
    if given != ("block", ("128", "128") if "--block-size 128 128" in form.options else ()):
        raise malformed(CONVERT, f"{tool} would write other blocks than those of {form.name}")
    counts = (found.count(START), found.count(END))
    if (any(counts) and not form.counts) or (found.words(CHECKPOINT_NAMES) and not form.exceptions):
        raise malformed(CONVERT, f"{tool} knows no layer counts and no names to leave out")
    return Conversion(form, *counts, found.words(CHECKPOINT_NAMES))


def _training(found: Arguments, recipes: str | None, contract: Contract) -> Training:
    if "--bf16" not in found.switches or found.values["--transformer-impl"] != "transformer_engine":
        raise malformed(TRAIN, "`--bf16` and `--transformer-impl transformer_engine` are what everything rests on")
    form, start, end = _global_form(found), found.count(START), found.count(END)
    flagged = FLAG in found.switches
    most = contract.model.layers // contract.train.pp
    if flagged and found.values["--fp8-format"] is not None and max(start, end) > most:
        raise malformed(TRAIN, f"Megatron keeps at most {most} first or last layers in BF16 at pp={contract.train.pp}")
    said = found.values["--te-precision-config-file"]
    matchers = () if said is None else read_recipes(said, recipes, contract.digest)
    if said is None and recipes is not None:
        raise malformed(RECIPES, "no argument of the trainer names it")
    return Training(form, flagged, start, end, matchers)


def _global_form(found: Arguments) -> Form | None:
    widths = [width for width in ("fp8", "fp4") if found.values[f"--{width}-format"] is not None]
    if not widths:
        return None
    if len(widths) > 1:
        raise malformed(TRAIN, "Megatron takes `--fp8-format` or `--fp4-format`, not both")
    lines = tuple(f"--{widths[0]}-{word} {found.values[f'--{widths[0]}-{word}']}" for word in ("format", "recipe"))
    form = next((form for form in FORMS.values() if form.trainer == lines), None)
    if form is None:
        raise malformed(TRAIN, f"`{' '.join(lines)}` is no format of a contract")
    return form


def _export(found: Arguments, training: Training, conversion: Conversion | None, contract: Contract) -> Export | None:
    """The exporter quantizes by the checkpoint's `quantization_config`, so in the form that was converted."""
    if found.values[MODE] != RAW:
        raise malformed(EXPORT, f"`{MODE} {found.values[MODE]}` forwards neither FP4, nor layer counts, nor recipes")
    if conversion is None:
        return None
    return Export(
        conversion.form,
        training.flagged,
        training.start,
        training.end,
        found.words(NAMES),
        is_interleaved(contract),
    )


def _check_server(found: Arguments, conversion: Conversion | None, contract: Contract) -> None:
    """What the server's arguments would change beside the checkpoint's list."""
    form = conversion.form if conversion else None
    runner = form.runner if form is not None and form.runner and contract.model.expert_count else "auto"
    needed = {
        f"{PREFIX}dtype": "bfloat16",
        f"{PREFIX}kv-cache-dtype": CACHES[contract.kv_cache],
        f"{PREFIX}quantization": form.method if form else None,
        f"{PREFIX}moe-runner-backend": runner,
        **dict(_sizes(contract)),
    }
    for name, value in needed.items():
        if found.values[name] != value:
            said = found.values[name] or "nothing"
            raise malformed(ROLLOUT, f"the server would run with `{name} {said}`; the contract needs {value or 'none'}")


def _sizes(contract: Contract) -> Iterator[tuple[str, str]]:
    if contract.rollout.stated:
        yield "--rollout-num-gpus-per-engine", str(contract.rollout.tp)
        yield f"{PREFIX}ep-size", str(contract.rollout.ep)
        yield f"{PREFIX}dp-size", str(contract.rollout.dp)
