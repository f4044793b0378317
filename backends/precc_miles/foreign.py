"""What Miles' converter, live export and server make of commands that no contract wrote.

The words are those of a converter (`…/convert_hf_to_mxfp8.py` and its arguments) and of a run, as a shell has them. The
decisions are what the converter stores and the server runs; where the live export, or the server's reading of the list
that the converter writes, is another, a sentence says so. What the trainer runs is not asked here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from os.path import basename

from precc.backend import Foreign, ForeignRule, Unsupported
from precc.contract import Cause, Entry
from precc.contract.wording import counted_names
from precc.diagnostics import error
from precc.formats import BF16, Decision
from precc.graph.model import ModelGraph, Tensor
from precc_miles.converter import Conversion, listed
from precc_miles.environment import Process
from precc_miles.export_arguments import CHECKPOINT_NAMES, NAMES
from precc_miles.exporter import Export
from precc_miles.forms import FP8_BLOCK, TOOLS
from precc_miles.names import Hit, checkpoint_name, hit, is_latent, linear_of
from precc_miles.reading.read import END, FLAG, START
from precc_miles.rollout import Server

SEEMS, UNSPELLED = "P901", "P902"

_TOOL = "convert_hf_to_"
_OTHER = frozenset({"convert_hf_to_torch_dist.py", "convert_hf_to_torch_dist_ray.py"})
"""Tools of that name that convert no format."""


def read_foreign(
    model: ModelGraph, arguments: Sequence[str], environment: Mapping[str, str], recipes: Mapping[str, str]
) -> Foreign:
    """This reads a converter's command and the run that its checkpoint is for (words, a `;` behind each command).

    Raises Unsupported with findings P901 for what the tool would not start with, P902 for what is no decision.
    """
    commands = tuple(_commands(arguments))
    tools = [(tool, command) for command in commands if (tool := _tool(command)) is not None]
    if not tools:
        return Foreign(tuple((tensor, None) for tensor in model.tensors), ())
    conversion = _conversion(*tools[-1])
    run = tuple(word for command in commands if _tool(command) is None for word in command)
    read = _Read(model, conversion, _export(conversion, run, model), Process(conversion.form, environment))
    return Foreign(tuple(read.decisions()), tuple(read.rules()), tuple(read.differences()))


def _commands(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    held: list[str] = []
    for word in (*words, ";"):
        if word == ";":
            yield tuple(held)
            held = []
        else:
            held.append(word)


def _tool(command: Sequence[str]) -> str | None:
    names = (basename(word) for word in command)
    return next((name for name in names if name.startswith(_TOOL) and name not in _OTHER), None)


def _conversion(tool: str, command: Sequence[str]) -> Conversion:
    if tool not in TOOLS:
        known = ", ".join(TOOLS)
        raise Unsupported(error(UNSPELLED, f"what {tool} stores is not modelled", help=f"known are {known}"))
    form, given = TOOLS[tool], _arguments(command)
    blocks = (given.get("--strategy", ("block",)), given.get("--block-size"))
    if form is FP8_BLOCK and blocks != (("block",), ("128", "128")):
        said = f"`{tool}` with `--strategy {' '.join(blocks[0])}` and blocks of {' '.join(blocks[1] or ('nothing',))}"
        raise Unsupported(error(UNSPELLED, f"{said} has no spelling", help="write `--block-size 128 128`"))
    if not form.counts:
        return Conversion(form)
    return Conversion(form, _count(given, START, 0), _count(given, END, 0), given.get(CHECKPOINT_NAMES, ()))


def _export(conversion: Conversion, run: Sequence[str], model: ModelGraph) -> Export:
    given = _arguments(run)
    interleaved = bool(model.config.get("indexer_rope_interleave", False))
    counts = _count(given, START, 1), _count(given, END, 1)
    return Export(conversion.form, FLAG in given, *counts, given.get(NAMES, ()), interleaved)


def _arguments(words: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The arguments of a command with their values; of a repeated one the last counts, as in argparse."""
    found: dict[str, tuple[str, ...]] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            found[name] = (value,) if equals else ()
        elif name:
            found[name] = (*found[name], word)
    return found


def _count(given: Mapping[str, tuple[str, ...]], name: str, default: int) -> int:
    words = given.get(name)
    if words is None:
        return default
    if len(words) != 1 or not words[0].isdecimal():
        raise Unsupported(error(SEEMS, f"`{name} {' '.join(words)}` is no count", help="put the number in"))
    return int(words[0])


class _Read:
    """One conversion and what follows it, tensor by tensor."""

    def __init__(self, model: ModelGraph, conversion: Conversion, export: Export, process: Process) -> None:
        self._model, self._conversion, self._export = model, conversion, export
        self._served = _served(process)
        self._stored = {id(tensor): conversion.quantizes(tensor, model.layers) for tensor in model.tensors}

    def decisions(self) -> Iterator[tuple[Tensor, Decision | None]]:
        """What is stored and served; a list that takes experts by number has no decision here."""
        for tensor in self._model.tensors:
            stored = self._stored[id(tensor)]
            if stored is None:
                message = (
                    f"{CHECKPOINT_NAMES} takes some experts of {tensor.module} by their numbers, which is not read"
                )
                raise Unsupported(error(UNSPELLED, message, help="name layers, not experts"))
            yield tensor, self._served if stored else None

    def rules(self) -> Iterator[ForeignRule]:
        """The parts of checkpoint names that the converter leaves out."""
        takes = Conversion(self._conversion.form)
        for part in self._conversion.exceptions:
            reached = [t for t in self._model.tensors if hit((part,), checkpoint_name(t), t.experts)]
            won = [t for t in reached if takes.quantizes(t, self._model.layers)]
            where = f"{self._conversion.form.tool} {CHECKPOINT_NAMES}"
            yield ForeignRule(part, where, _counted(reached), _counted(won))

    def differences(self) -> Iterator[str]:
        """What the live export, and the server's reading of the list, make of a tensor otherwise."""
        latent, layers = is_latent(self._model), self._model.layers
        entries = listed(self._conversion, self._model)
        held, server = frozenset(entries), Server(self._conversion.form, entries, self._model)

        def exported(tensor: Tensor) -> Hit:
            return self._export.quantizes(tensor, linear_of(tensor, latent), layers, held)

        yield from self._apart("the live export", exported)
        yield from self._apart("the server", server.quantizes)

    def _apart(self, stage: str, asked: Callable[[Tensor], Hit]) -> Iterator[str]:
        """One sentence for the tensors that a stage alone quantizes, one for those that it leaves."""
        found = {True: [], False: []}  # type: dict[bool, list[Tensor]]
        for tensor in self._model.tensors:
            answer = asked(tensor)
            if answer is not None and tensor.is_gemm and answer != self._stored[id(tensor)]:
                found[answer].append(tensor)
        for quantized, tensors in found.items():
            if tensors:
                does, other = ("quantizes", "leaves as it is") if quantized else ("leaves as it is", "quantizes")
                yield f"{stage} {does} what the converter {other}: {counted_names(list(map(_entry, tensors)))}"


def _served(process: Process) -> Decision:
    """The stored weights, and the inputs that the server multiplies them with; nothing of training."""
    weight, operand = process.operands
    return Decision(weight, operand, train="bf16")


def _entry(tensor: Tensor) -> Entry:
    return Entry(tensor, BF16, Cause("", 0, ""))


def _counted(tensors: Sequence[Tensor]) -> int:
    return sum(tensor.count for tensor in tensors)
