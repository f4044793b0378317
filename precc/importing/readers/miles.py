"""Miles' flags: a launch script or a file of arguments, with the converter's command and a recipe file if there is one.

What is served comes from the converter's command by Miles' own lists, what is trained from Megatron's arguments and the
variables; both are asked of their targets. Where a tensor is quantized in storage and trained in BF16 the policy says
`train bf16`; where they differ in a way that has no word, the policy follows what is stored, and that is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, cast

from precc.backend import Foreign, Importing, Unsupported, find_backend
from precc.diagnostics import Diagnostic, error, warning
from precc.formats import Decision
from precc.graph.model import ModelGraph, Tensor
from precc.importing.launch_words import Launch, read_launch
from precc.importing.patterns import folded
from precc.importing.readers.te_precision import (
    chosen_recipes,
    is_recipe,
    launch_texts,
    needed_gpu,
    read_trainer,
    remarks_of,
    stated_sizes,
    trainer_rules,
)
from precc.importing.reading import Decided, Document, Reading, Source, SourceRule, Unimportable
from precc.importing.schemes import served, weight
from precc.records import replace
from precc.syntax.words import Role

TOOL = "Miles' flags"
RANK = 65

DIFFER, UNREAD, SEEMS = "P905", "P907", "P901"

MARKS = ("--extra-high-precision-layers-", "--sglang-", "--rollout-num-gpus", "tools/convert_hf_to_", "--hf-checkpoint")
"""Words that only a command of Miles has."""

SERVER_SIZES = {"--sglang-tp-size": "tp", "--sglang-ep-size": "ep", "--sglang-dp-size": "dp"}
_CACHES = {"bf16": "bf16", "bfloat16": "bf16", "fp8_e4m3": "fp8"}
QAT, QAT_GROUP = "OPEN_TRAINING_INT4_FAKE_QAT_FLAG", "OPEN_TRAINING_INT4_GROUP_SIZE"


def recognizes(source: Source) -> bool:
    """Whether a script or a file of arguments has words of Miles."""
    return any(is_miles(document) for document in source.documents)


def is_miles(document: Document) -> bool:
    """Whether a document that is no data has words of Miles, with or beside Megatron's."""
    return document.data is None and any(mark in document.text for mark in MARKS)


def read(source: Source, graph: ModelGraph) -> Reading:
    """What converter and trainer decide, side by side."""
    _refuse_python(source)
    recipes = {document.name: document.text for document in source.documents if is_recipe(document)}
    launch = read_launch(launch_texts(source))
    trained = read_trainer(graph, _run(launch), launch.environment, chosen_recipes(launch.words, recipes))
    stored = _stored(graph, launch)
    pairs = tuple(_pairs(stored, _with_fake_quant(trained, launch.environment)))
    return Reading(
        decisions=tuple((pair.tensor, pair.decision) for pair in pairs),
        rules=(*trainer_rules(trained), *_rules(stored)),
        findings=(*_told(pairs), *remarks_of(trained, UNREAD), *(remarks_of(stored, DIFFER) if stored else ())),
        kv_cache=_kv_cache(launch.words, stored),
        train=dict(stated_sizes(launch.words)) | needed_gpu(trained),
        rollout=dict(_server_sizes(launch.words)) | needed_gpu(trained),
        remarks=() if stored else ("Read without a converter's command: what is trained is taken to be served too.",),
    )


def _refuse_python(source: Source) -> None:
    for document in source.documents:
        if document.name.endswith(".py") and is_miles(document):
            problem = "a launcher in Python decides its flags when it runs; it is not run here"
            help = "import the command lines that it prints, in a file of their own"
            raise Unimportable([error(SEEMS, f"{document.path}: {problem}", help=help)])


def _run(launch: Launch) -> tuple[str, ...]:
    """The words of the run, without those of converters: they share names of arguments."""
    commands = (command for command in launch.commands if not any("convert_hf_to_" in word for word in command))
    return tuple(word for command in commands for word in command)


def _stored(graph: ModelGraph, launch: Launch) -> Foreign | None:
    """What the converter stores; None where no command of one is there. Raises Unimportable."""
    try:
        miles = cast(Importing, find_backend("miles"))
        found = miles.read_foreign(graph, launch.separated, launch.environment, {})
    except Unsupported as refusal:
        raise Unimportable(refusal.findings) from None
    return found if any(decision is not None for _, decision in found.decisions) else None


# --- storage and training side by side ---------------------------------------------------------------


class _Pair(NamedTuple):
    """A tensor with what is decided for it, and what the trainer does otherwise; empty where it does not."""

    tensor: Tensor
    decision: Decision | None
    otherwise: str = ""


def _with_fake_quant(trained: Foreign, environment: Mapping[str, str]) -> Sequence[Decided]:
    """The trainer's decisions; its flag for INT4 rounds the weights of all grouped experts."""
    if environment.get(QAT) != "1":
        return trained.decisions
    group = environment.get(QAT_GROUP, "128")
    if group not in ("32", "64", "128"):
        raise Unimportable([error("P902", f"{QAT_GROUP}={group} has no spelling", help="a policy has 32, 64 and 128")])
    rounded = replace(served(weight("int4", group=int(group))), train="fake_quant")
    return tuple(
        (tensor, rounded if tensor.role is Role.ROUTED_EXPERTS and decision is not None else decision)
        for tensor, decision in trained.decisions
    )


def _pairs(stored: Foreign | None, trained: Sequence[Decided]) -> Iterator[_Pair]:
    if stored is None:
        yield from (_Pair(tensor, decision) for tensor, decision in trained)
        return
    for (tensor, kept), (_, run) in zip(stored.decisions, trained, strict=True):
        yield _pair(tensor, kept, run)


def _pair(tensor: Tensor, kept: Decision | None, run: Decision | None) -> _Pair:
    is_trained = run is not None and run.is_quantized
    if kept is None:
        return _Pair(tensor, None, f"trained in {run}, stored in BF16" if is_trained else "")
    if not is_trained or run is None:
        return _Pair(tensor, kept)
    if (run.weight.format, run.weight.scale) != (kept.weight.format, kept.weight.scale):
        return _Pair(tensor, kept, f"trained in {run.weight}, stored in {kept.weight}")
    return _Pair(
        tensor, run, "" if run.input == kept.input else f"trained with inputs in {run.input}, served with {kept.input}"
    )


def _told(pairs: Sequence[_Pair]) -> Iterator[Diagnostic]:
    """One finding for each way in which trainer and storage differ."""
    apart: dict[str, list[Tensor]] = {}
    for pair in pairs:
        if pair.otherwise:
            apart.setdefault(pair.otherwise, []).append(pair.tensor)
    for how, tensors in apart.items():
        help = "the policy follows what is stored; change the flags of one of the two"
        yield warning(DIFFER, f"{folded(tensors)}: {how}", help=help)


def _rules(stored: Foreign | None) -> Iterator[SourceRule]:
    for rule in stored.rules if stored is not None else ():
        yield SourceRule(rule.text, rule.where, rule.matched, rule.beyond, beaten=rule.matched > 0 and rule.won == 0)


# --- the server --------------------------------------------------------------------------------------


def _kv_cache(words: Sequence[str], stored: Foreign | None) -> str | None:
    """The KV cache that the server is told, or that the NVFP4 converter writes down where it is told none."""
    said = [value for word, value in pairwise(words) if word == "--sglang-kv-cache-dtype"]
    if said and said[-1] != "auto":
        if said[-1] not in _CACHES:
            raise Unimportable([error("P902", f"`--sglang-kv-cache-dtype {said[-1]}` has no spelling")])
        return _CACHES[said[-1]]
    formats = {decision.weight.format for _, decision in (stored.decisions if stored else ()) if decision is not None}
    return "fp8" if "nvfp4" in formats else None


def _server_sizes(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    for word, value in pairwise(words):
        if word in SERVER_SIZES and value.isdecimal() and int(value):
            yield SERVER_SIZES[word], value
