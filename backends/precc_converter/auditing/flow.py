"""An audit from end to end. Read this first.

checkpoint ─headers, index→ tensors        what cannot be read is a finding
contract ─promises→ names, dtypes, shapes ─compare→ right ones and faults
outer scales that are shared, the index, config.json and hf_quant_config.json
with a source, or a sample: the bytes of the right ones
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

from precc.backend import Unsupported
from precc.contract import Contract, load_contract
from precc.contract.serial import ContractError
from precc.diagnostics import Diagnostic
from precc.graph.headers import Located
from precc_converter.auditing.checkpoint import open_checkpoint, unfinished
from precc_converter.auditing.configuration import configuration_findings
from precc_converter.auditing.faults import COMPILED
from precc_converter.auditing.origin import source_findings
from precc_converter.auditing.outer import compare_outer_scales
from precc_converter.auditing.promises import promises_of
from precc_converter.auditing.stored import compare_headers
from precc_converter.conversion.crew import processes
from precc_converter.conversion.findings import NotConverted, stop
from precc_converter.conversion.source import Source, open_source
from precc_converter.conversion.units import Unit, batches, units_of
from precc_converter.plan import plan_of

TASK_BYTES = 256 << 20
"""Bytes of a checkpoint after which a task is closed."""


@dataclass(frozen=True)
class Bytes:
    """Whose bytes were looked at: so many units of all, and the tensors in them; `seed` chose them if not all were."""

    units: int
    of: int
    tensors: int
    seed: int | None


@dataclass(frozen=True)
class Audit:
    """What was compared: stored tensors that the contract promises, those in which no fault was found, the findings."""

    digest: str
    checked: int
    agree: int
    findings: tuple[Diagnostic, ...]
    bytes: Bytes | None = None


def audit(
    checkpoint: str | Path,
    contract: str | Path,
    *,
    source: str | Path | None = None,
    sample: int | None = None,
    seed: int = 0,
    workers: int = 1,
) -> Audit:
    """This compares a checkpoint folder, or one safetensors file, with what a contract promises.

    `contract` is the folder of a compile, or the `contract.json` in it. From headers, JSON files and the outer scales
    that tensors share; without torch. With `source`, the checkpoint that it was made of, the bytes of every tensor, or
    of `sample` units that `seed` chooses, are compared with what the converter makes of the source. With `sample`
    alone the bytes of so many units are looked at for codes and scales that no quantizer writes. `workers` processes
    do that. A source that cannot be used is a finding. Raises NotConverted for such a contract.
    """
    decided, folder = _contract(Path(contract))
    incomplete = unfinished(Path(checkpoint))
    if incomplete is not None:
        return Audit(decided.digest, 0, 0, (incomplete,))
    found = open_checkpoint(Path(checkpoint))
    promises = list(promises_of(decided))
    compared = compare_headers(found, promises)
    outer = compare_outer_scales(promises, compared.right)
    findings = [*found.findings, *compared.faults.findings(), *outer.findings()]
    findings += found.index_faults(compared.right)
    findings += configuration_findings(found, decided, folder)
    findings += source_findings(found, _folder(Path(source))) if source is not None else ()
    apart = outer.names
    right = {name: located for name, located in compared.right.items() if name not in apart}
    if source is None and sample is None:
        return Audit(decided.digest, compared.checked, len(right), tuple(findings))
    try:
        looked, more, wrong = _look(decided, source, right, sample, seed, workers)
    except NotConverted as problem:
        return Audit(decided.digest, compared.checked, len(right), (*findings, *problem.findings))
    return Audit(decided.digest, compared.checked, len(right) - wrong, (*findings, *more), looked)


def _contract(compiled: Path) -> tuple[Contract, Path]:
    """A contract that the converter can follow, and its folder. Raises NotConverted."""
    try:
        contract = load_contract(compiled)
        plan_of(contract)
    except Unsupported as refusal:
        raise NotConverted(*refusal.findings) from None
    except (ContractError, UnicodeDecodeError, RecursionError) as problem:
        raise stop(COMPILED, str(problem), "compile the policy again") from None
    return contract, _folder(compiled)


def _folder(path: Path) -> Path:
    """The folder that a path names, or that its file is in."""
    return path if path.is_dir() else path.parent


def _look(
    contract: Contract,
    source: str | Path | None,
    right: Mapping[str, Located],
    sample: int | None,
    seed: int,
    workers: int,
) -> tuple[Bytes, list[Diagnostic], int]:
    """The bytes of all units, or of a sample: whose, what was found, and how many tensors are wrong."""
    from precc_converter.auditing.values import Looked, Task, difference_findings, look

    every = units_of(contract)
    sources = _source(source, every) if source is not None else {}
    units = every if sources else tuple(unit for unit in every if unit.members[0].made.weight.is_quantized)
    chosen = units if sample is None or sample >= len(units) else _sampled(units, sample, seed)
    tasks = [
        Task(part, {n: sources[n] for unit in part for n in unit.source_names} if sources else {}, _held(part, right))
        for part in batches(chosen, TASK_BYTES)
    ]
    total = Looked()
    with processes(min(workers, max(len(tasks), 1))) as crew:
        for future in [crew.submit(look, task) for task in tasks]:
            total += future.result()
    findings = [*total.findings, *difference_findings(total.differences), *total.faults.findings()]
    wrong = len({one.name for one in total.differences} | total.faults.names)
    return Bytes(len(chosen), len(units), total.tensors, None if chosen is units else seed), findings, wrong


def _source(path: str | Path, units: Iterable[Unit]) -> Mapping[str, Located]:
    source: Source = open_source(Path(path))
    source.check(units)
    return source.tensors


def _sampled(units: tuple[Unit, ...], count: int, seed: int) -> tuple[Unit, ...]:
    chosen = Random(seed).sample(range(len(units)), count)
    return tuple(units[at] for at in sorted(chosen))


def _held(units: Iterable[Unit], right: Mapping[str, Located]) -> dict[str, Located]:
    return {name: right[name] for unit in units for name in unit.outputs if name in right}
