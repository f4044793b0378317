"""A Megatron trainer's precision: `te_precision.yaml` with the arguments and the environment of its launch.

The first enabled matcher whose glob matches a layer's path wins, and what it says counts where the autocast around the
layer lets it: both are the `te` target's to know, and its reading of Megatron and TransformerEngine is asked.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator, Mapping
from itertools import pairwise
from os.path import basename
from typing import cast

from precc.backend import Foreign, Importing, Unsupported, find_backend, named_contract
from precc.diagnostics import Diagnostic, error, info, warning
from precc.graph.model import ModelGraph
from precc.importing.launch_words import one_command, read_launch
from precc.importing.reading import Document, Reading, Source, SourceRule, Unimportable

TOOL = "Megatron and TransformerEngine"
RANK = 70

RECIPE_FILE = "--te-precision-config-file"
MARKS = frozenset(
    {
        RECIPE_FILE,
        "--fp8-format",
        "--fp8-recipe",
        "--fp4-format",
        "--fp4-recipe",
        "--transformer-impl",
        "--first-last-layers-bf16",
    }
)
"""Arguments that only a Megatron trainer has."""

SIZES = {
    "--tensor-model-parallel-size": "tp",
    "--pipeline-model-parallel-size": "pp",
    "--num-virtual-stages-per-pipeline-rank": "vpp",
    "--expert-model-parallel-size": "ep",
    "--expert-tensor-parallel-size": "etp",
}
"""Megatron's parallel sizes by the keys of `train:`."""

SEEMS = "P901"
IGNORED = "P907"
OPEN = "P910"

ARGUMENTS = ".args"
"""How a file of arguments ends: the words of one command."""

WRAPPER = "with_stage_recipe.sh"
"""It picks the recipe of a rank's stage, and states nothing of its own."""

_STAGE = re.compile(r"\.stage(\d+)\.ya?ml$")


def recognizes(source: Source) -> bool:
    """A file with `configs` and `matchers`, or a text with arguments that only Megatron has."""
    return any(is_recipe(document) or is_launch(document) for document in source.documents)


def is_recipe(document: Document) -> bool:
    """Whether a document is Megatron's per-module recipes."""
    said = document.section()
    return said is not None and {"configs", "matchers"} <= said.keys()


def is_launch(document: Document) -> bool:
    """Whether a document holds a launch line, or the arguments of one."""
    return document.data is None and document.name != WRAPPER and any(mark in document.text for mark in MARKS)


def launch_texts(source: Source) -> Iterator[str]:
    """The texts that may set arguments and variables: all but the recipes, and the wrapper that a compile writes."""
    for each in source.documents:
        if not is_recipe(each) and each.name != WRAPPER:
            yield one_command(each.text) if each.name.endswith(ARGUMENTS) else each.text


def read(source: Source, graph: ModelGraph) -> Reading:
    """What Megatron and TransformerEngine would train each tensor in."""
    recipes = {document.name: document.text for document in source.documents if is_recipe(document)}
    launch = read_launch(launch_texts(source))
    started = any(map(is_launch, source.documents))
    if not started:
        _refuse_unmatched(source, recipes)
    words = launch.words if started else _assumed(recipes)
    chosen = chosen_recipes(words, recipes) if started else recipes
    foreign = read_trainer(graph, (*words, *_stages(chosen, words)), launch.environment, chosen)
    return Reading(
        decisions=foreign.decisions,
        rules=tuple(trainer_rules(foreign)),
        findings=(*remarks_of(foreign, IGNORED), *_left_open(source)),
        train=dict(stated_sizes(words)) | needed_gpu(foreign),
        targets=("te",),
        remarks=() if started else (_ASSUMED,),
    )


def _left_open(source: Source) -> Iterator[Diagnostic]:
    """What a compile decided beside the trainer, where it wrote the files."""
    if any(named_contract(document.text) for document in source.documents):
        yield info(OPEN, "a trainer's files do not say what is stored or served below 16 bits and trained in BF16")


_ASSUMED = "Read without a launch line: layers run under an engine-wide FP8 or FP4 mode, and no variable is set."


def _assumed(recipes: Mapping[str, str]) -> tuple[str, ...]:
    """The engine-wide mode under which recipes are in force: FP4 where one of them is."""
    is_four = any("fp4_quantization_recipe" in text for text in recipes.values())
    return (
        ("--fp4-format", "e2m1", "--bf16") if is_four else ("--fp8-format", "e4m3", "--fp8-recipe", "mxfp8", "--bf16")
    )


def _refuse_unmatched(source: Source, recipes: Mapping[str, str]) -> None:
    """Alone, recipes decide a layer only where a matcher does: what others run is on the launch line."""
    for document in source.documents:
        if document.name in recipes:
            rules = document.section("matchers") or {}
            if not any(isinstance(rule, dict) and rule.get("pattern") == "*" for rule in rules.values()):
                problem = "it has no matcher for everything, and what other layers run is on the launch line"
                help = "import a folder that holds this file and the launch line (a script, or a file of arguments)"
                raise Unimportable([error(SEEMS, f"{document.path}: {problem}", help=help)])


def chosen_recipes(words: tuple[str, ...], documents: Mapping[str, str]) -> dict[str, str]:
    """The recipe files that a line takes: the one that it names, one for each stage, or none. Raises Unimportable."""
    named = [words[at + 1] for at, word in enumerate(words[:-1]) if word == RECIPE_FILE]
    named += [word.partition("=")[2] for word in words if word.startswith(f"{RECIPE_FILE}=")]
    stages = sorted((int(found[1]), name) for name in documents if (found := _STAGE.search(name)))
    if not named or (stages and "$" in named[-1]):
        return {name: documents[name] for _, name in stages}
    if named[-1].startswith("base64:"):
        return {f"{RECIPE_FILE} base64:…": _decoded(named[-1])}
    name = basename(named[-1])
    if name in documents:
        return {name: documents[name]}
    if len(documents) == 1 and "$" in named[-1]:
        return dict(documents)
    help = "import a folder that holds the script and this file"
    raise Unimportable([error(SEEMS, f"the launch line names {named[-1]}, which is not here", help=help)])


def _decoded(named: str) -> str:
    try:
        return b64decode(named.removeprefix("base64:"), validate=True).decode()
    except ValueError:
        raise Unimportable([error(SEEMS, f"{RECIPE_FILE} {named[:24]}… is no text in base64")]) from None


def _stages(recipes: Mapping[str, str], words: tuple[str, ...]) -> tuple[str, ...]:
    """One recipe file a pipeline stage says how many stages there are."""
    size = "--pipeline-model-parallel-size"
    return (size, str(len(recipes))) if len(recipes) > 1 and size not in words else ()


def read_trainer(
    graph: ModelGraph, words: tuple[str, ...], environment: Mapping[str, str], recipes: Mapping[str, str]
) -> Foreign:
    """What the `te` target reads in a launch. Raises Unimportable."""
    unset = next((f"{mark} {value}" for mark, value in pairwise(words) if mark in MARKS and "$" in value), None)
    if unset is not None and not unset.startswith(RECIPE_FILE):
        help = "put the value in; a script is read, not run"
        raise Unimportable([error(SEEMS, f"`{unset}` is a variable that the script does not set", help=help)])
    try:
        return cast(Importing, find_backend("te")).read_foreign(graph, words, environment, recipes)
    except Unsupported as refusal:
        raise Unimportable(refusal.findings) from None


def trainer_rules(foreign: Foreign) -> Iterator[SourceRule]:
    """The matchers; one for everything may be left with nothing to decide."""
    for rule in foreign.rules:
        beaten = rule.matched > 0 and rule.won == 0 and rule.text != "*"
        yield SourceRule(rule.text, rule.where, rule.matched, rule.beyond, beaten)


def remarks_of(foreign: Foreign, code: str) -> Iterator[Diagnostic]:
    """What no decision says, as findings."""
    yield from (warning(code, remark) for remark in foreign.remarks)


def stated_sizes(words: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """The parallel sizes that a line states, by the keys of `train:`; experts are split as all else is, unless told."""
    found = {
        SIZES[word]: value for word, value in pairwise(words) if word in SIZES and value.isdecimal() and int(value)
    }
    yield from found.items()
    if found.get("tp", "1") != "1" and "etp" not in found:
        yield "etp", found["tp"]


def needed_gpu(foreign: Foreign) -> dict[str, str]:
    """FP32 scales of FP8 blocks exist on Hopper alone."""
    scales = {decision.weight.scale for _, decision in foreign.decisions if decision is not None}
    formats = {decision.weight.format for _, decision in foreign.decisions if decision is not None}
    return {"gpu": "h200"} if "fp8_block" in formats and "fp32" in scales else {}
