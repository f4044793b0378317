"""The files beside the weights: `config.json` with the contract's quantization, and what is copied as it is."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from precc.contract import Contract
from precc_converter.conversion.findings import NO_CONFIGURATION, UNREADABLE, NotConverted, stop
from precc_converter.conversion.objects import obstacle, read_object, read_object_or_null
from precc_converter.described import other_model, without_quantization
from precc_converter.plan import plan_of

CONFIG = "config.json"
LEGACY = "hf_quant_config.json"
DIGEST = "precc_contract"
_AGAIN = "compile the policy again"
_SERVED = "sglang/quantization_config.json"
_SERVED_LEGACY = "sglang/hf_quant_config.json"

WRITTEN_ANEW = (CONFIG, LEGACY)
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".h5", ".msgpack", ".onnx", ".index.json")
"""How the names of files end that are, or list, weights of the source: they are not copied."""


def configuration_files(source: Path, compiled: Path, contract: Contract) -> dict[str, str]:
    """The texts of `config.json`, last, and of what goes with it. Raises NotConverted.

    `compiled` is the folder of the contract: what the server reads stands beside it, and is taken as it is.
    """
    shown = read_object(source / CONFIG, "give a whole checkpoint folder")
    problem = other_model(shown, source / CONFIG, contract)
    if problem is not None:
        raise NotConverted(problem)
    config = without_quantization(shown)
    quantization, legacy = _served(compiled, contract) if contract.wants("sglang") else (_planned(contract), None)
    if quantization is not None:
        config["quantization_config"] = {**quantization, DIGEST: contract.digest}
    files = {} if legacy is None else {LEGACY: _text(legacy)}
    return {**files, CONFIG: _text(config)}


def other_files(source: Path) -> Iterator[str]:
    """What of a source is copied, as paths below it: tokenizer, generation config, code; no weights, nothing hidden.

    Raises NotConverted for what cannot be copied. Folders that are linked to are copied as well.
    """
    for where, folders, names in os.walk(source, followlinks=True, onerror=_unlisted):
        folders[:] = sorted(name for name in folders if not (name.startswith(".") or _leads_up(source, where, name)))
        for name in sorted(names):
            path = os.path.relpath(os.path.join(where, name), source)
            if not (name.startswith(".") or name.endswith(WEIGHTS) or path in WRITTEN_ANEW):
                found = obstacle(source / path)
                if found is not None:
                    raise _not_copied(source / path, found)
                yield path


def _leads_up(source: Path, where: str, name: str) -> bool:
    """Whether a folder is a link to one that it stands in, on the way by which it was reached."""
    linked = os.path.realpath(os.path.join(where, name))
    ways = [Path(where), *(way for way in Path(where).parents if way.is_relative_to(source))]
    return any(os.path.commonpath((os.path.realpath(way), linked)) == linked for way in ways)


def _unlisted(problem: OSError) -> None:
    raise _not_copied(problem.filename, f"cannot be read: {problem.strerror}")


def _not_copied(path: str | Path, found: str) -> NotConverted:
    return stop(UNREADABLE, f"{path} {found}", "see to it, or take it out of the source: all of that is copied")


def _served(compiled: Path, contract: Contract) -> tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]:
    """What SGLang's artifacts say: the quantization config (None if nothing is quantized) and, for some, a second."""
    if not (compiled / _SERVED).is_file():
        raise stop(
            NO_CONFIGURATION,
            f"{compiled} has no {_SERVED}, though its contract is for sglang",
            "give the whole folder that `precc compile` wrote, compiled for all targets of the policy",
        )
    legacy = read_object(compiled / _SERVED_LEGACY, _AGAIN) if (compiled / _SERVED_LEGACY).is_file() else None
    quantization = read_object_or_null(compiled / _SERVED, _AGAIN)
    for shown in filter(None, (quantization, legacy)):
        if shown.get(DIGEST) != contract.digest:
            raise _foreign(compiled, shown.get(DIGEST), contract)
    return quantization, legacy


def _foreign(compiled: Path, found: object, contract: Contract) -> NotConverted:
    problem = f"{compiled / 'sglang'} is of the contract {found}, `contract.json` is {contract.digest}"
    return stop(NO_CONFIGURATION, problem, _AGAIN)


def _planned(contract: Contract) -> dict[str, Any] | None:
    """The decisions themselves, for no server in particular; None if nothing is quantized."""
    lines = [line for line in plan_of(contract)["tensors"] if "quantizer" in line]
    quantizers = {line["tensor"]: line["quantizer"] for line in lines}
    return {"quant_method": "precc", "tensors": quantizers} if quantizers else None


def _text(shown: Mapping[str, Any]) -> str:
    return json.dumps(shown, indent=2, ensure_ascii=False) + "\n"
