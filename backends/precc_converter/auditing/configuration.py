"""`config.json` and `hf_quant_config.json`, against the contract, against what was compiled for it, and each other."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from precc.contract import Contract, Entry
from precc.contract.wording import counted_names, listed
from precc.diagnostics import Diagnostic, error
from precc.syntax.words import Role
from precc_converter.auditing.checkpoint import Checkpoint, read_object
from precc_converter.auditing.declared import Config, Declared, module_of, read_declared
from precc_converter.auditing.faults import COMPILED, CONFIGURATION, UNREADABLE
from precc_converter.conversion.configuration import CONFIG, DIGEST, LEGACY
from precc_converter.conversion.objects import FETCH
from precc_converter.described import QUANTIZATION, other_model
from precc_converter.plan import plan_of

SERVED = {CONFIG: "sglang/quantization_config.json", LEGACY: "sglang/hf_quant_config.json"}
"""What was compiled for a server, by the file that it comes to stand in."""

_HELP = "take what `precc compile` wrote, or convert again: a server believes this file, not the weights"
_ALWAYS_SERVED = (Role.ATTENTION, Role.MLA, Role.DENSE_MLP, Role.ROUTED_EXPERTS, Role.SHARED_EXPERTS)
"""Roles of linear layers that every server asks the quantization config about."""


@dataclass
class Configurations:
    """The quantization that each file of a checkpoint declares, and what was compiled; None for what is not there."""

    model: Config | None = None
    declared: dict[str, Config] = field(default_factory=dict)
    compiled: dict[str, Config] = field(default_factory=dict)
    findings: list[Diagnostic] = field(default_factory=list)


def configuration_findings(checkpoint: Checkpoint, contract: Contract, compiled: Path) -> Iterator[Diagnostic]:
    """Everything that the JSON files of a checkpoint say otherwise than its contract."""
    read = _read(checkpoint.folder, contract, compiled)
    yield from read.findings
    if read.model is not None:
        yield from filter(None, [other_model(read.model, Path(CONFIG), contract)])
    yield from _digests(checkpoint, read, contract)
    yield from _undeclared(checkpoint, read, contract)
    for file, config in read.declared.items():
        yield from _one(file, config, read, contract)


def _undeclared(checkpoint: Checkpoint, read: Configurations, contract: Contract) -> Iterator[Diagnostic]:
    """A `config.json` that says nothing of quantized weights. `hf_quant_config.json` may be the only file that does,
    as ModelOpt has it; beside the shards of a conversion the other one was taken from elsewhere."""
    quantized = any(entry.decision.weight.is_quantized for entry in contract.entries)
    if read.model is None or CONFIG in read.declared or not quantized:
        return
    ours = [file for file, config in read.declared.items() if DIGEST in config]
    ours += [file for files in checkpoint.digests.values() for file in files]
    if ours:
        what = f"{CONFIG} has no quantization_config, though {ours[0]} is of a conversion: it is the source's, or older"
        yield error(CONFIGURATION, what, help=_HELP)
    elif not read.declared:
        what = f"{CONFIG} has no quantization_config: a server would take the weights for unquantized"
        yield error(CONFIGURATION, what, help=_HELP)


def _read(folder: Path, contract: Contract, compiled: Path) -> Configurations:
    read = Configurations()
    for file in (CONFIG, LEGACY):
        shown = read_object(folder / file)
        if isinstance(shown, Diagnostic):
            read.findings.append(shown)
        elif file == CONFIG and shown is None:
            read.findings.append(error(UNREADABLE, f"{folder / CONFIG} is missing", help=FETCH))
        elif file == CONFIG:
            read.model = shown
            _declare(read, file, _quantization(shown or {}))
        else:
            _declare(read, file, shown)
    read.compiled = dict(_compiled(contract, compiled, read.findings))
    return read


def _declare(read: Configurations, file: str, config: Config | None) -> None:
    if config is not None:
        read.declared[file] = config


def _quantization(config: Config) -> Config | None:
    places = (config, config.get("text_config"))
    found = (place.get(key) for place in places if isinstance(place, Mapping) for key in QUANTIZATION)
    return next((config for config in found if isinstance(config, Mapping)), None)


def _compiled(contract: Contract, folder: Path, findings: list[Diagnostic]) -> Iterator[tuple[str, Config]]:
    """What the converter would write: the server's artifacts, or the plan for a contract that is for no server."""
    if not contract.wants("sglang"):
        lines = [line for line in plan_of(contract)["tensors"] if "quantizer" in line]
        yield CONFIG, {"quant_method": "precc", "tensors": {line["tensor"]: line["quantizer"] for line in lines}}
        return
    for file, path in SERVED.items():
        shown = None if (folder / path).is_file() and _is_null(folder / path) else read_object(folder / path)
        if isinstance(shown, Diagnostic):
            findings.append(shown)
        elif shown is not None and shown.get(DIGEST) != contract.digest:
            message = f"{folder / path} is of the contract {shown.get(DIGEST)}, `contract.json` is {contract.digest}"
            findings.append(error(COMPILED, message, help="compile the policy again"))
        elif shown is not None:
            yield file, shown


def _is_null(path: Path) -> bool:
    """Whether nothing is quantized: the artifact then says null."""
    return path.read_bytes().strip() == b"null"


def _digests(checkpoint: Checkpoint, read: Configurations, contract: Contract) -> Iterator[Diagnostic]:
    """One finding for each other contract that files of the checkpoint name."""
    named: dict[str, list[str]] = {digest: list(files) for digest, files in checkpoint.digests.items()}
    for file, config in read.declared.items():
        if DIGEST in config:
            named.setdefault(str(config[DIGEST]), []).insert(0, file)
    for digest, files in named.items():
        if digest != contract.digest:
            many = f" and {len(files) - 2} more files" if len(files) > 3 else ""
            which = ", ".join(files[:2]) + many if many else listed(files)
            message = f"{which}: written for contract {digest[:12]}, this is {contract.digest[:12]}"
            help = "audit against the contract it was written for, or convert again for this one"
            yield error(CONFIGURATION, message, help=help)


def _one(file: str, config: Config, read: Configurations, contract: Contract) -> Iterator[Diagnostic]:
    """What one file says: word by word where it claims this contract, else by what it means."""
    compiled = read.compiled.get(file) or (read.compiled.get(CONFIG) if file == LEGACY else None)
    if compiled is not None and _plain(config) == _plain(compiled):
        return
    if file in read.compiled and config.get(DIGEST) == contract.digest:
        yield from _edited(file, config, read.compiled[file])
        return
    try:
        declared = read_declared(config)
        other = compiled or (read.declared.get(CONFIG) if file == LEGACY else None)
        wanted = read_declared(other) if other and other.get("quant_method") != "precc" else None
        yield from _formats(file, declared, wanted, contract)
    except ValueError as problem:
        yield error(CONFIGURATION, f"{file} cannot be compared with the contract: {problem}", help=_HELP)
        return
    yield from _facts(file, declared, wanted, contract)


def _plain(config: Config) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key != DIGEST}


def _edited(file: str, config: Config, compiled: Config) -> Iterator[Diagnostic]:
    for key in dict.fromkeys((*compiled, *config)):
        if config.get(key) != compiled.get(key):
            message = f"{file}: {_difference(key, config.get(key), compiled.get(key))}, though it names this contract"
            yield error(CONFIGURATION, message, help=_HELP)


def _difference(key: str, found: Any, wanted: Any) -> str:
    if isinstance(found, list) and isinstance(wanted, list) and all(isinstance(one, str) for one in found + wanted):
        words = [("lacks", [one for one in wanted if one not in found]), ("has", [o for o in found if o not in wanted])]
        said = [f"{verb} {short(ones)}" for verb, ones in words if ones]
        return f"`{key}` {' and '.join(said) or 'is in another order'}"
    return f"`{key}` is {short(found)}, not {short(wanted)}"


def short(value: Any) -> str:
    """A value of a JSON file as a finding shows it."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 120 else f"{text[:119]}…"


def _formats(file: str, declared: Declared, wanted: Declared | None, contract: Contract) -> Iterator[Diagnostic]:
    """The modules that a config gives another format than the contract does."""
    wrong: dict[tuple[str, str], list[Entry]] = {}
    for entry in contract.entries:
        if not entry.tensor.is_gemm:
            continue
        found, decided = declared.format_of(module_of(entry.tensor)), entry.decision.weight
        own = decided.format if decided.is_quantized else None
        if found != own and (own is not None or _is_asked(entry, declared, wanted)):
            wrong.setdefault((found or "unquantized", own or decided.format), []).append(entry)
    for (found_as, own_as), entries in wrong.items():
        message = f"{file} declares {found_as}, the contract decides {own_as}: {counted_names(entries)}"
        yield error(CONFIGURATION, message, help=_HELP)


def _is_asked(entry: Entry, declared: Declared, wanted: Declared | None) -> bool:
    """Whether a server quantizes an unquantized tensor's module unless the config leaves it out."""
    if entry.tensor.role in _ALWAYS_SERVED and entry.tensor.mtp is None:
        return True
    alike = wanted is not None and wanted.method == declared.method and wanted.layers is None
    return alike and wanted is not None and wanted.format_of(module_of(entry.tensor)) is None


def _facts(file: str, declared: Declared, wanted: Declared | None, contract: Contract) -> Iterator[Diagnostic]:
    cache = "fp8" if contract.kv_cache == "fp8" else None
    if declared.cache != cache:
        found = declared.cache or "no format"
        message = f"{file} declares {found} for the KV cache, the contract decides {contract.kv_cache}"
        yield error(CONFIGURATION, message, help=_HELP)
    if wanted is None or (wanted.method, wanted.format) != (declared.method, declared.format):
        return
    for key, value in wanted.facts.items():
        if declared.facts.get(key) != value:
            message = f"{file}: {_difference(key, declared.facts.get(key), value)}"
            yield error(CONFIGURATION, message, help=_HELP)
