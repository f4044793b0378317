"""Contract → run: the layer counts, the parts of names to leave out, and the recipes that come nearest to it.

Nothing here asks whether they say it all. That is read back from what is chosen, stage by stage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from precc.contract import Contract, Entry
from precc.graph.model import EXPERT
from precc_miles import exporter
from precc_miles.converter import Conversion, takes
from precc_miles.environment import variables
from precc_miles.exporter import Export
from precc_miles.forms import NVFP4, Form, form_of
from precc_miles.names import Linear, checkpoint_name, hit, is_latent, linear_of
from precc_miles.profile import MTP_INNER
from precc_miles.stages import Run, decided
from precc_miles.trainer import Matcher, Recipe, Training

DEFAULT = "everything_else"


@lru_cache(maxsize=1)
def choose(contract: Contract) -> Run:
    """The run of a contract; without a quantized tensor, one that converts and quantizes nothing.

    The latest contract's answer is kept: every rule asks.
    """
    form = form_of(contract)
    if form is None:
        return Run(Training(None, start=0, end=0), variables=variables(contract, None))
    start, end = _counts(contract, form)
    flagged = bool(start or end)
    conversion = Conversion(form, start, end)
    export = Export(form, flagged, start, end, interleaved=is_interleaved(contract))
    lines = _lines(contract, form)
    run = Run(
        _training(contract, lines, Training(None, flagged, start, end)),
        replace(conversion, exceptions=_left_out(lines, conversion, contract.model.layers)),
        replace(export, exceptions=_kept_back(lines, export, contract.model.layers)),
        variables(contract, form),
    )
    served = run.draft(contract)
    return replace(run, drafts=all(decided(entry).rollout == found for entry, found in served.items()))


def is_interleaved(contract: Contract) -> bool:
    """Whether the model's indexer is one whose keys the exporter leaves in BF16."""
    return bool(contract.model.config.get("indexer_rope_interleave", False))


@dataclass(frozen=True, slots=True)
class _Line:
    """One entry: its linear layer, and whether it is to be stored, and trained, in the form of the run."""

    entry: Entry
    linear: Linear | None
    stored: bool
    trained: bool


def _lines(contract: Contract, form: Form) -> tuple[_Line, ...]:
    latent = is_latent(contract.model)
    return tuple(
        _Line(
            entry,
            linear_of(entry.tensor, latent),
            entry.decision.weight.format == form.name,
            entry.decision.weight.format == form.name and entry.decision.trains_quantized,
        )
        for entry in contract.entries
    )


# --- layer counts ------------------------------------------------------------------------------------


def _counts(contract: Contract, form: Form) -> tuple[int, int]:
    """The leading and trailing layers in which nothing is quantized of what the converter would quantize."""
    if not form.counts:
        return 0, 0
    taken: dict[int, bool] = {}
    for entry in contract.entries:
        layer = entry.tensor.layer
        if layer is not None and takes(form, entry.tensor):
            taken[layer] = taken.get(layer, False) or entry.decision.weight.format == form.name
    low = [layer for layer, quantized in taken.items() if quantized]
    if not low:
        return 0, 0
    start = max((layer + 1 for layer in taken if layer < min(low)), default=0)
    end = max((contract.model.layers - layer for layer in taken if layer > max(low)), default=0)
    return start, end


# --- parts of names ----------------------------------------------------------------------------------


def _left_out(lines: Sequence[_Line], conversion: Conversion, layers: int) -> tuple[str, ...]:
    """The parts of checkpoint names for the converter: none where its tool has no such argument."""
    if not conversion.form.exceptions:
        return ()
    taken = [(line, checkpoint_name(line.entry.tensor)) for line in lines if takes(conversion.form, line.entry.tensor)]
    high = [(line, name) for line, name in taken if not line.stored]
    high = [(line, name) for line, name in high if conversion.quantizes(line.entry.tensor, layers) is not False]
    return _cover(high, [(line, name) for line, name in taken if line.stored])


def _kept_back(lines: Sequence[_Line], export: Export, layers: int) -> tuple[str, ...]:
    """The parts of Megatron names for the live export, also where the converter's list would do."""
    if not export.form.exceptions:
        return ()
    taken = [
        (line, line.linear.parameter)
        for line in lines
        if line.linear is not None and exporter.takes(export.form, line.linear, export.interleaved)
    ]
    high = [(line, name) for line, name in taken if not line.stored]
    high = [(line, name) for line, name in high if export.quantizes(line.entry.tensor, line.linear, layers, ())]
    return _cover(high, [(line, name) for line, name in taken if line.stored])


_Named = tuple[_Line, str]


def _cover(high: Sequence[_Named], low: Sequence[_Named]) -> tuple[str, ...]:
    """Few parts of names that take every `high` name and no `low` one; what has no such part is left out."""
    chosen: dict[str, None] = {}
    valid: dict[str, bool] = {}
    for line, name in high:
        experts = line.entry.tensor.experts
        if hit(chosen, name, experts):
            continue
        for part in filter(name.__contains__, _parts(name)):
            if part not in valid:
                valid[part] = all(hit((part,), other, held.entry.tensor.experts) is False for held, other in low)
            if valid[part]:
                chosen[part] = None
                break
    return tuple(chosen)


def _parts(name: str) -> Iterator[str]:
    """The parts of a name that could stand for it, from those of all layers to its own."""
    path = name.rpartition(".")[0].removeprefix("module.module.").split(".")
    words, tail = path, list[str]()
    if EXPERT in path:
        words, tail = path[: path.index(EXPERT)], path[path.index(EXPERT) + 1 :]
    number = next((at for at, word in enumerate(words) if word.isdecimal()), None)
    below = words if number is None else [word for word in words[number + 1 :] if word != MTP_INNER]
    yield from (f".{word}." for word in (*below, *tail))
    yield from (f".{'.'.join(below[at:])}." for at in range(len(below) - 1, -1, -1))
    if number is not None:
        layer = ".".join(words[: number + 1])
        yield from (".".join((layer, *below[:length], "")) for length in range(len(below) + 1))
    yield f"{'.'.join(path)}." if EXPERT not in path else f"{'.'.join(words)}."


# --- recipes -----------------------------------------------------------------------------------------


def _training(contract: Contract, lines: Sequence[_Line], plain: Training) -> Training:
    """The trainer's arguments: no engine-wide form, and no recipes, where nothing is trained in one."""
    forms: dict[Linear, Form | None] = {}
    form = form_of(contract)
    for line in lines:
        if line.linear is not None and line.linear.multiplied:
            forms.setdefault(line.linear, form if line.trained else None)
    if form is None or not any(forms.values()):
        return plain
    ahead = (item for item in forms.items() if item[0].mtp is not None)
    inner = {linear: held for linear, held in forms.items() if linear.mtp is None}
    kept = _kept(plain, contract.model.layers)
    matchers = (*_mtp(ahead, form), *_decoder(inner, kept), Matcher(DEFAULT, "*", Recipe(None)))
    return replace(plain, form=form, matchers=matchers)


def _kept(plain: Training, layers: int) -> Callable[[Linear], bool]:
    """Whether the counts keep a layer in BF16, whatever its recipes say."""

    def kept(linear: Linear) -> bool:
        layer = linear.layer or 0
        return plain.flagged and (layer < plain.start or layer >= layers - plain.end)

    return kept


def _mtp(forms: Iterator[tuple[Linear, Form | None]], form: Form) -> Iterator[Matcher]:
    """MTP layers, which FP4's autocast does not surround."""
    for linear, held in forms:
        if held is not None:
            label = f"mtp_{linear.mtp}_{_label(linear.suffix)}"
            yield Matcher(label, linear.path(0), Recipe(held, forced=form is NVFP4))


def _decoder(forms: dict[Linear, Form | None], kept: Callable[[Linear], bool]) -> Iterator[Matcher]:
    """Single layers that differ from the same linear layer of most others, then each kind of linear layer."""
    kinds: dict[str, Counter[Form | None]] = {}
    for linear, held in forms.items():
        kinds.setdefault(linear.suffix, Counter())[held] += not kept(linear)
    general = {suffix: counted.most_common(1)[0][0] for suffix, counted in kinds.items()}
    for linear, held in forms.items():
        if held != general[linear.suffix] and not kept(linear):
            label = f"layer_{linear.layer}_{_label(linear.suffix)}"
            yield Matcher(label, linear.path(linear.layer or 0), Recipe(held))
    for suffix, held in general.items():
        if held is not None:
            yield Matcher(_label(suffix), f"decoder.layers.*.{suffix}", Recipe(held))


def _label(suffix: str) -> str:
    return suffix.replace("self_attention.", "attention.").replace("mlp.", "").replace(".", "_")
