"""What SGLang made of the artifacts against the contract: one finding for each group of tensors that differ alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from precc.contract import Contract, Entry
from precc.contract.shrinking import SmallContract
from precc.contract.wording import counted_names, tensors_of
from precc.diagnostics import Diagnostic, error
from precc.syntax.words import Role
from precc_sglang.families import INT4, family_of
from precc_sglang.methods import Choice
from precc_sglang.names import Kind
from precc_sglang.served import Served, served
from precc_sglang.upstream.expected import (
    BLOCKS,
    Holder,
    held,
    held_entries,
    holders,
    parts_stacks,
    stored_entries,
    stored_name,
)
from precc_sglang.upstream.serving import Server
from precc_sglang.upstream.wire import Built, Cast, Loaded, Parameter, Seen
from precc_sglang.versions import is_blackwell

DECIDES, STOPS = "P511", "P512"

WIDER = frozenset({("BF16", "F32"), ("F16", "F32"), ("F8_E8M0", "F32")})
"""Conversions that keep every value: SGLang holds some routers and their biases in FP32, and some scales."""

SAME_BITS = ("I8", "U8")
"""Codes that a loader takes for signed ones on their way into a parameter of unsigned ones."""

PLACEHOLDER = ("I64", "BF16")
"""An expert layer keeps the shapes of packed weights in the server's dtype, and never reads them."""

NORMS = ("F32", "BF16")
"""SGLang keeps norms that are stored in FP32 in the server's dtype."""

DECAYS, DELTAS = "A_log", "dt_bias"
"""What delta attention holds for each head, and for each channel."""

KERNEL_WIDTH = 128
"""What the width of an expert is rounded up to for FlashInfer's TensorRT-LLM kernels."""

SHARED_WITH_TARGET = frozenset({Role.EMBEDDING, Role.LM_HEAD})
"""What a draft model takes from the model it drafts for, once both are loaded."""


@dataclass
class Case:
    """One judgement: the engine with its version, what was asked, what was seen."""

    engine: str
    contract: Contract
    choice: Choice
    small: SmallContract
    stored: Mapping[str, Parameter]
    seen: Seen

    @cached_property
    def holders(self) -> list[Holder]:
        return holders(self.contract, self.choice)

    @cached_property
    def small_holders(self) -> list[Holder]:
        return holders(self.small.contract, self.choice)

    @cached_property
    def server(self) -> Server:
        return Server.of(self.seen, is_blackwell(self.contract.rollout))

    @cached_property
    def origin(self) -> Mapping[int, Entry]:
        """The large entry of each small one, by identity."""
        return {id(small): large for small, large in zip(self.small.contract.entries, self.small.origins, strict=True)}

    @cached_property
    def written(self) -> Mapping[str, list[str]]:
        """What the small checkpoint holds: each tensor's last word, by the words before it."""
        table: dict[str, list[str]] = {}
        for name in self.stored:
            parent, _, word = name.rpartition(".")
            table.setdefault(parent, []).append(word)
        return table


@dataclass
class Found:
    """Differences as they are found: what is said of entries → these. An entry counts once, however often it differs.

    `explained` are the entries, by identity, whose module has another method: all else about them follows from that.
    """

    groups: dict[tuple[str, str, str, object], dict[int, Entry]] = field(default_factory=dict)
    common: list[Diagnostic] = field(default_factory=list)
    explained: set[int] = field(default_factory=set)

    def add(self, entry: Entry, before: str, after: str, because: str) -> None:
        """An entry of which `before` NAMES `after` is true."""
        if id(entry) not in self.explained:
            self.groups.setdefault((before, after, because, entry.cause), {})[id(entry)] = entry

    def findings(self, engine: str) -> Iterator[Diagnostic]:
        """One finding a group."""
        for (before, after, because, cause), group in self.groups.items():
            entries = list(group.values())
            message = f"{engine} {before} {counted_names(entries)} {after}"
            help = f"the engine's code decides it {because}; the policy in {cause}"
            yield error(DECIDES, message, entries[0].span, help=help)

    def differing(self) -> Iterable[Entry]:
        """The entries that differ, each once."""
        return {at: entry for group in self.groups.values() for at, entry in group.items()}.values()


def compare(case: Case) -> tuple[int, int, tuple[Diagnostic, ...]]:
    """How many tensors were compared, how many agree, and the findings."""
    total = tensors_of(held_entries(case.contract, case.choice.built))
    found = Found(common=list(_process(case)))
    stop = case.seen.stop
    if case.seen.modules:
        for holder in case.holders:
            _compare_built(case, holder, found)
    if stop is None:
        _compare_loaded(case, found)
    findings = [*found.common, *found.findings(case.engine)]
    if stop is not None:
        findings.append(_stopped(case, stop.doing, stop.words))
    nothing = stop is not None or bool(found.common)
    return total, 0 if nothing else total - tensors_of(found.differing()), tuple(findings)


def _stopped(case: Case, doing: str, words: str) -> Diagnostic:
    return error(
        STOPS,
        f"{case.engine} stops while {doing}: {words}",
        case.contract.entries[0].span,
        help="a server would stop so, too: compile again if a file was edited, or write what it names otherwise",
    )


# --- the process -------------------------------------------------------------------------------------

IN_SERVED = frozenset({"dtype", "kv-cache-dtype", "moe-runner-backend", "fp8-gemm-backend"})
"""Arguments whose effect is seen at each tensor."""


def _process(case: Case) -> Iterator[Diagnostic]:
    """The variables and arguments that come out otherwise, which holds for every tensor."""
    span = case.contract.entries[0].span
    for name, (found, wanted) in case.seen.misread.items():
        message = f"{case.engine} reads {name} as {found} after env.sh; the contract says {wanted}"
        yield error(DECIDES, message, span, help="source the env.sh of this compile last, in the server's own shell")
    for name, (found, wanted) in case.seen.misparsed.items():
        if name not in IN_SERVED:
            message = f"{case.engine} takes `{name}` from server.yaml as {found}; the contract says {wanted}"
            yield error(DECIDES, message, span, help="start the server with the server.yaml of this compile")


# --- modules -----------------------------------------------------------------------------------------


def _compare_built(case: Case, holder: Holder, found: Found) -> None:
    if _is_shared(holder):
        return
    built = (case.seen.draft if holder.draft else case.seen.modules).get(holder.name)
    if built is None:
        for entry in holder.entries:
            found.add(entry, "has no module", f"holds: there is no `{holder.name}`", "in its model class")
        return
    compare_served(case.contract, case.server, holder, built, found)
    for word, wanted in holder.parameters.items():
        _compare_parameter(holder, word, wanted, built, found)


def _is_shared(holder: Holder) -> bool:
    """A head tied to the embedding is that module, and its own tensor is not read."""
    return all(entry.tensor.tied_to is not None for entry in holder.entries)


def compare_served(contract: Contract, server: Server, holder: Holder, built: Built, found: Found) -> None:
    """This compares how a module runs; one that never asks for a method chooses for itself."""
    if holder.module is None or holder.module.kind is Kind.NEVER:
        return
    for entry in holder.entries:
        wanted = served(entry, contract.kv_cache, holder.module)
        runs = server.runs(entry, holder.module, built, wanted)
        if runs != wanted:
            said, says = apart(runs, wanted)
            found.add(entry, "would run", f"as {said}; the contract says {says}", "in the method of each module")
        if runs.method != wanted.method:
            found.explained.add(id(entry))


_PHRASES = {"method": "{}", "inputs": "inputs {}", "cache": "{} KV cache", "dtype": "dtype {}"}


def apart(runs: Served, wanted: Served) -> tuple[str, str]:
    """What two ways to run a tensor differ in, each in words."""
    names = [name for name in _PHRASES if getattr(runs, name) != getattr(wanted, name)]
    said, says = (
        ", ".join(_PHRASES[name].format(getattr(one, name) or "unquantized") for name in names)
        for one in (runs, wanted)
    )
    return said, says


def _compare_parameter(holder: Holder, word: str, wanted: Parameter, built: Built, found: Found) -> None:
    held_as = built.parameters.get(word)
    norm = all(entry.tensor.role is Role.NORM for entry in holder.entries)
    if held_as is not None and any(_holds(held_as, laid, norm) for laid in _laid_out(holder, word, wanted)):
        return
    said = "no such parameter" if held_as is None else str(held_as)
    for entry in holder.entries:
        after = f"in `{word}`: {said}; the contract says {wanted}"
        found.add(entry, "would hold", after, "in the parameters of each module")


def _laid_out(holder: Holder, word: str, wanted: Parameter) -> Iterator[Parameter]:
    """A parameter as it may be laid out.

    Some kernels want experts in whole blocks, zeros behind their rows or columns, or packed integers by columns. The
    decays of heads may be stored in as many places as a head is wide, and held in as many as there are heads.
    """
    yield wanted
    if word == DECAYS and DELTAS in holder.parameters and len(wanted.shape) == 1:
        heads = holder.parameters[DELTAS].shape[0] // wanted.shape[0]
        yield Parameter(wanted.dtype, (1, 1, heads, 1))
    if holder.module is not None and holder.module.kind is Kind.EXPERTS and len(wanted.shape) == 3:
        yield from _padded(holder, word, wanted)
        family = family_of(holder.entries[0].decision)
        if family is not None and family.name == INT4.name:
            experts, rows, columns = wanted.shape
            yield Parameter(wanted.dtype, (experts, columns, rows))


def _padded(holder: Holder, word: str, wanted: Parameter) -> Iterator[Parameter]:
    """A part of all experts with their width, the rows of gate and up and the columns of down, made a multiple."""
    down = next((entry.tensor for entry in holder.entries if entry.tensor.part == "down"), None)
    if down is None:
        return
    width = down.shape[down.contraction]
    padded = -(-width // KERNEL_WIDTH) * KERNEL_WIDTH
    experts, rows, columns = wanted.shape
    if word.startswith("w13"):
        yield Parameter(wanted.dtype, (experts, rows * padded // width, columns))
    else:
        yield Parameter(wanted.dtype, (experts, rows, columns * padded // width))


def _holds(held_as: Parameter, wanted: Parameter, norm: bool) -> bool:
    """Whether a parameter takes a stored tensor."""
    same = wanted.dtype == held_as.dtype or _is_harmless(wanted.dtype, held_as.dtype, norm)
    return held_as.shape == wanted.shape and same


def _is_harmless(stored: str, held_as: str, norm: bool) -> bool:
    """Whether a conversion keeps every value, is into a placeholder, or is one that SGLang makes of every norm."""
    types = stored, held_as
    return types in WIDER or types in (PLACEHOLDER, SAME_BITS) or (norm and types == NORMS)


# --- loading -----------------------------------------------------------------------------------------


def _compare_loaded(case: Case, found: Found) -> None:
    main, draft = case.seen.loaded, case.seen.loaded_draft
    loads = [loaded for loaded in (main, draft) if loaded is not None]
    read = frozenset[str]().union(*(loaded.read for loaded in loads))
    casts = {cast.tensor: cast for loaded in loads for cast in loaded.casts}
    apart = parts_stacks(case.small.contract)
    for entry in held_entries(case.small.contract, case.choice.built):
        for stored in stored_entries(entry, apart):
            _compare_tensors(case, stored, case.origin[id(entry)], read, casts, found)
    for holder in case.small_holders:
        loaded = draft if holder.draft else main
        if loaded is not None and not (holder.draft and _from_target(holder)):
            _compare_written(case, holder, loaded, found)
    _compare_others(case, found)


def _from_target(holder: Holder) -> bool:
    return all(entry.tensor.role in SHARED_WITH_TARGET for entry in holder.entries)


def _compare_tensors(
    case: Case, entry: Entry, origin: Entry, read: frozenset[str], casts: Mapping[str, Cast], found: Found
) -> None:
    """The stored parts of one tensor: each is read by some loader, and no value of it is changed."""
    tensor = entry.tensor
    if tensor.tied_to is not None or (tensor.mtp is not None and tensor.role in SHARED_WITH_TARGET):
        return
    wanted, written = [word for word, _ in held(entry, case.choice.built)], _written(case, entry)
    for word in sorted({*wanted} - {*written}):
        found.add(origin, f"would find no `{word}` of", "in the checkpoint, which the contract stores", "in its loader")
    for word in written:
        names = [stored_name(tensor, module, word) for module in tensor.modules()]
        if not read.issuperset(names):
            found.add(origin, f"would never read `{word}` of", "which the checkpoint holds", "in its loader")
        cast = next((casts[name] for name in names if name in casts), None)
        if cast is not None and not _is_harmless(cast.stored, cast.held, tensor.role is Role.NORM):
            after = f"from {cast.stored} to {cast.held}; the contract says {entry.decision}"
            found.add(origin, f"would convert `{word}` of", after, "in its loader")


def _written(case: Case, entry: Entry) -> list[str]:
    """The last words under which the small checkpoint holds a tensor; a bias belongs to no weight."""
    tensor = entry.tensor
    module = next(tensor.modules())
    if tensor.parameter != "weight":
        parent, _, own = f"{module}.{tensor.parameter}".rstrip(".").rpartition(".")
        named = {own: own, **{f"{own}_{said}": word for word, said in BLOCKS.items() if tensor.stacked}}
        return [named[word] for word in case.written.get(parent, ()) if word in named]
    return [word for word in case.written.get(module, ()) if word != "bias"]


def _compare_written(case: Case, holder: Holder, loaded: Loaded, found: Found) -> None:
    """The parameters of one module: each is written from end to end."""
    for word in holder.parameters:
        if f"{holder.name}.{word}" in loaded.unwritten:
            for entry in holder.entries:
                after = "which stays as it was allocated"
                found.add(case.origin[id(entry)], f"would load nothing into `{word}` of", after, "in its loader")


def _compare_others(case: Case, found: Found) -> None:
    """Parameters that belong to no tensor of the contract, and that no loader fills."""
    known = {f"{holder.name}.{word}" for holder in case.small_holders for word in holder.parameters}
    for loaded in (case.seen.loaded, case.seen.loaded_draft):
        for name in sorted(set(loaded.unwritten) - known if loaded is not None else ()):
            if name.rpartition(".")[0] in case.choice.built.idle:
                continue
            found.common.append(
                error(
                    DECIDES,
                    f"{case.engine} has a parameter `{name}` that nothing in the contract fills",
                    case.contract.entries[0].span,
                    help="it would stay as it was allocated; write its module in another format",
                )
            )
