"""The files beside the weights: `config.json` with the contract's quantization, and what is copied as it is."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from precc.contract import Contract
from precc_converter.conversion.findings import NO_CONFIGURATION, UNREADABLE, NotConverted, stop
from precc_converter.plan import plan_of

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
LEGACY = "hf_quant_config.json"
DIGEST = "precc_contract"
_SERVED = "sglang/quantization_config.json"
_SERVED_LEGACY = "sglang/hf_quant_config.json"

WRITTEN_ANEW = (CONFIG, LEGACY)
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".h5", ".msgpack", ".onnx", ".index.json")
"""How the names of files end that are, or list, weights of the source: they are not copied."""

_OLD_QUANTIZATION = ("quantization_config", "compression_config")


def configuration_files(source: Path, compiled: Path, contract: Contract) -> dict[str, str]:
    """The texts of `config.json`, last, and of what goes with it. Raises NotConverted.

    `compiled` is the folder of the contract: what the server reads stands beside it, and is taken as it is.
    """
    config = {key: value for key, value in _read(source / CONFIG).items() if key not in _OLD_QUANTIZATION}
    quantization, legacy = _served(compiled, contract) if contract.wants("sglang") else (_planned(contract), None)
    if quantization is not None:
        config["quantization_config"] = {**quantization, DIGEST: contract.digest}
    files = {} if legacy is None else {LEGACY: _text(legacy)}
    return {**files, CONFIG: _text(config)}


def other_files(source: Path) -> Iterator[str]:
    """What of a source is copied, as paths below it: tokenizer, generation config, code; no weights, nothing hidden."""
    for where, folders, names in os.walk(source):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = os.path.relpath(os.path.join(where, name), source)
            if not (name.startswith(".") or name.endswith(WEIGHTS) or path in WRITTEN_ANEW):
                yield path


def _served(compiled: Path, contract: Contract) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """What SGLang's artifacts say: the quantization config (None if nothing is quantized) and, for some, a second."""
    if not (compiled / _SERVED).is_file():
        raise stop(
            NO_CONFIGURATION,
            f"{compiled} has no {_SERVED}, though its contract is for sglang",
            "give the whole folder that `precc compile` wrote, compiled for all targets of the policy",
        )
    legacy = _read(compiled / _SERVED_LEGACY) if (compiled / _SERVED_LEGACY).is_file() else None
    quantization = _read(compiled / _SERVED, empty=True)
    for shown in filter(None, (quantization, legacy)):
        if shown.get(DIGEST) != contract.digest:
            raise _foreign(compiled, shown.get(DIGEST), contract)
    return quantization, legacy


def _foreign(compiled: Path, found: object, contract: Contract) -> NotConverted:
    problem = f"{compiled / 'sglang'} is of the contract {found}, `contract.json` is {contract.digest}"
    return stop(NO_CONFIGURATION, problem, "compile the policy again")


def _planned(contract: Contract) -> dict[str, Any] | None:
    """The decisions themselves, for no server in particular; None if nothing is quantized."""
    lines = [line for line in plan_of(contract)["tensors"] if "quantizer" in line]
    quantizers = {line["tensor"]: line["quantizer"] for line in lines}
    return {"quant_method": "precc", "tensors": quantizers} if quantizers else None


def _read(path: Path, empty: bool = False) -> Any:
    """The object in a JSON file; with `empty`, or null."""
    try:
        shown = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise stop(UNREADABLE, f"{path} is missing", "give a whole checkpoint folder") from None
    except OSError as problem:
        raise stop(UNREADABLE, f"{path} cannot be read: {problem.strerror}", "see to the file") from None
    except (ValueError, RecursionError) as problem:
        raise stop(UNREADABLE, f"{path} is not valid JSON: {problem}", "fetch or compile it again") from None
    if not isinstance(shown, Mapping) and not (empty and shown is None):
        raise stop(UNREADABLE, f"{path} holds no JSON object", "fetch or compile it again")
    return shown


def _text(shown: Mapping[str, Any]) -> str:
    return json.dumps(shown, indent=2, ensure_ascii=False) + "\n"
