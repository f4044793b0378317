"""The flow of an import, from a source and a model to a policy that was compiled and compared."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from precc.contract import Entry
from precc.contract.wording import amount, counted_names
from precc.diagnostics import Diagnostic, error, info, warning
from precc.front import read_policy
from precc.graph.model import ModelGraph, Tensor
from precc.importing.checkpoint import model_config
from precc.importing.detection import find_reader
from precc.importing.reading import Reading, Source, SourceRule, Unimportable
from precc.importing.synthesis import Outline, outline
from precc.importing.wanted import Wanted, wanted
from precc.importing.writing import policy_text
from precc.records import field, record, replace
from precc.resolve.bind import bind
from precc.source import SourceFile

MOST_SELECTORS = 12
"""An imported policy with more of them, in however many rules, says which tensors force the others."""

SEEMS, DEAD, BEYOND, LONG, OTHERWISE = "P901", "P903", "P904", "P906", "P908"


@record
class Imported:
    """A policy from another tool's file: the reader's name, the text, what was found, and the numbers behind it."""

    tool: str
    text: str = field(repr=False)
    findings: tuple[Diagnostic, ...]
    reading: Reading = field(repr=False)
    rules: int
    tensors: int


def import_policy(source: Source, graph: ModelGraph, name: str) -> Imported:
    """The policy that decides what a source decides, for every tensor of a model. Raises Unimportable."""
    reader = find_reader(source)
    _check_architecture(source, graph)
    reading = _trainable(reader.read(source, graph))
    decided = wanted(reading, graph)
    found = outline(decided, graph)
    long = tuple(long_policy(found))
    remarks = (f"Imported from {_shown(source)} for {graph.name}.", *reading.remarks)
    text = policy_text(found, reading, name, (*remarks, *(finding.message for finding in long)))
    check(text, decided, graph)
    findings = (*reading.findings, *_about_rules(reading.rules), *long)
    tensors = sum(item.tensor.count for item in decided)
    return Imported(reader.TOOL, text, findings, reading, len(found.rules), tensors)


def _check_architecture(source: Source, graph: ModelGraph) -> None:
    """This refuses a configuration of another class than the model's: its names are those of other tensors."""
    said = (model_config(source) or {}).get("architectures")
    named = said if isinstance(said, list) else []
    if named and graph.architecture not in named:
        problem = f"{source.path} is the configuration of {named[0]}; {graph.name} is {graph.architecture}"
        raise Unimportable([error(SEEMS, problem, help="leave --model out, or name the model that it is for")])


def _trainable(reading: Reading) -> Reading:
    """The reading with the GPU that its formats need: only Hopper multiplies FP8 blocks with FP32 scales."""
    needs_hopper = any(
        decision.weight.format == "fp8_block" and decision.weight.scale == "fp32" and decision.train is None
        for decision in {decision for _, decision in reading.decisions if decision is not None}
    )
    if not needs_hopper or "gpu" in reading.train:
        return reading
    return replace(reading, train={"gpu": HOPPER, **reading.train})


HOPPER = "h200"


def _shown(source: Source) -> str:
    if not source.is_folder:
        return source.documents[0].name
    return f"the folder {Path(source.path).resolve().name}"


# --- the comparison ----------------------------------------------------------------------------------

DEFECT = "this is a defect of precc: please report it with the file"


def check(text: str, decided: Iterable[Wanted], graph: ModelGraph) -> None:
    """This compiles the text and compares every tensor. Raises Unimportable: nothing is written then."""
    policy, findings = read_policy(SourceFile("imported.prec", text))
    broken = [finding for finding in findings if finding.is_error]
    if broken:
        raise Unimportable([error(OTHERWISE, f"the imported policy does not read: {broken[0].message}", help=DEFECT)])
    entries: dict[tuple[object, ...], list[Entry]] = {}
    for entry in bind(policy, graph).contract.entries:
        entries.setdefault(_identity(entry.tensor), []).append(entry)
    apart = [
        entry
        for item in decided
        for entry in entries[_identity(item.tensor)]
        if _meet(entry.tensor, item.tensor) and entry.decision != item.decision
    ]
    if apart or {_identity(item.tensor) for item in decided} != entries.keys():
        raise Unimportable([error(OTHERWISE, f"the policy decides {counted_names(apart)} otherwise", help=DEFECT)])


def _identity(tensor: Tensor) -> tuple[object, ...]:
    return tensor.path, tensor.parameter


def _meet(one: Tensor, other: Tensor) -> bool:
    """Whether two ranges of experts of one tensor overlap."""
    if one.experts is None or other.experts is None:
        return True
    return one.experts.start < other.experts.stop and other.experts.start < one.experts.stop


# --- what there is to say ----------------------------------------------------------------------------


def _about_rules(rules: Sequence[SourceRule]) -> Iterator[Diagnostic]:
    meant = [rule for rule in rules if not rule.idle]
    dead = [rule for rule in meant if not rule.matched]
    yield from _dead(dead, is_any_alive=len(dead) < len(meant))
    for alike in _alike([rule for rule in rules if rule.beaten]):
        yield warning(DEAD, f"{_texts(alike)}: other rules win all that {_reach(alike)} ({alike[0].where})")
    for alike in _alike([rule for rule in rules if rule.beyond]):
        yield warning(
            BEYOND,
            f"{_texts(alike)} {_reach(alike)} more than it says: {alike[0].beyond} ({alike[0].where})",
            help="the policy decides what the rule reaches; add a rule if that was not meant",
        )


def _dead(rules: list[SourceRule], is_any_alive: bool) -> Iterator[Diagnostic]:
    others = "" if is_any_alive or len(rules) == 1 else ". No rule of the source reaches one: is it for this model?"
    for alike in _alike(rules):
        yield warning(
            DEAD,
            f"{amount(len(alike), 'rule')} {'reaches' if len(alike) == 1 else 'reach'} nothing: {_texts(alike)} "
            f"({alike[0].where})",
            help=f"no tensor of this model has such a name; the tool takes no notice{others}",
        )


def _alike(rules: Iterable[SourceRule]) -> list[list[SourceRule]]:
    """Rules whose texts differ in numbers only, together."""
    found: dict[str, list[SourceRule]] = {}
    for rule in rules:
        found.setdefault(_NUMBER.sub("#", rule.text), []).append(rule)
    return list(found.values())


_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|\*|$)")


def _texts(rules: list[SourceRule]) -> str:
    """The text of one rule, or of several that differ in a number: `model.layers.{0..78}.self_attn.o_proj`."""
    first, last = rules[0].text, rules[-1].text
    if len(rules) == 1:
        return f"`{first}`"
    numbers = sorted(int(found[0]) for rule in rules if (found := _NUMBER.search(rule.text)))
    if first == last or not numbers:
        return f"`{first}`"
    is_run = numbers == list(range(numbers[0], numbers[-1] + 1))
    if is_run and _NUMBER.sub("#", first, count=1) == _NUMBER.sub("#", last, count=1):
        return f"`{_NUMBER.sub(f'{{{numbers[0]}..{numbers[-1]}}}', first, count=1)}`"
    return f"`{first}` to `{last}`"


def _reach(rules: list[SourceRule]) -> str:
    return "reaches" if len(rules) == 1 else "reach"


def long_policy(found: Outline) -> Iterator[Diagnostic]:
    """Which tensors need more than a dozen selectors."""
    if len(found.selectors) > MOST_SELECTORS:
        beyond = found.selectors[MOST_SELECTORS:]
        names = ", ".join(f"`{selector}`" for selector in beyond[:MOST_LISTED])
        more = f" and {len(beyond) - MOST_LISTED} more" if len(beyond) > MOST_LISTED else ""
        yield info(
            LONG,
            f"{len(found.selectors)} selectors instead of {MOST_SELECTORS}: "
            f"decided unlike their kind are {names}{more}.",
        )


MOST_LISTED = 5
