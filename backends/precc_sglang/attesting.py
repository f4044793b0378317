"""In a live process: what runs is what was compiled.

    from precc.contract import load_contract
    from precc_sglang import attest

    record = attest(model, load_contract("out"))     # a loaded model, in the server's own process

Call it where the server's arguments are in force, before the first request. Importing this loads no torch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from precc.backend import Attestation, NotAttested, Unsupported, differing_variables, installed_versions, select_version
from precc.contract import Contract
from precc.diagnostics import Diagnostic, error
from precc_sglang.emission import unknown_architecture
from precc_sglang.environment import environment
from precc_sglang.methods import Choice, choice_of
from precc_sglang.names import Kind
from precc_sglang.server import arguments
from precc_sglang.upstream.comparing import DECIDES, Found, compare_served
from precc_sglang.upstream.expected import Holder, holders
from precc_sglang.upstream.frontdoor import cache_dtype, differing, dtype_word, make_from, modules, settled
from precc_sglang.upstream.releases import boot
from precc_sglang.upstream.serving import DTYPES, Server
from precc_sglang.upstream.wire import Built, Modules
from precc_sglang.versions import is_blackwell

DISTRIBUTIONS = {"sglang": "sglang", "flashinfer": "flashinfer-python"}

CODES = frozenset({"weight", "weight_packed"})
"""The parameters that keep their names after loading; kernels swizzle, pad and repack scales."""

REPACKED = frozenset({("U8", "I32"), ("F8_E4M3", "I32")})
"""Marlin stores eight-bit words of codes as 32-bit ones."""

DRAFT = "model.decoder."
"""How the names of a draft model's layer begin."""


def attest(subject: Any, contract: Contract, kv_cache_dtype: Any = None) -> Attestation:
    """This compares a loaded SGLang model with a contract, and the process's environment and arguments.

    `subject` is a model (`torch.nn.Module`), a ModelConfig, whose model is then built without memory, or a
    ServerArgs, of which only arguments and environment are compared. `kv_cache_dtype` is the torch dtype of the
    allocated cache; without it, the one that SGLang's own rule gives for the arguments in force. Raises NotAttested
    on any difference, else returns the record.
    """
    choice = choice_of(contract)
    if choice is None:
        raise Unsupported(unknown_architecture(contract))
    installed = installed_versions(DISTRIBUTIONS)
    engine = f"SGLang {installed.get('sglang', '')}".strip()
    found = Found(common=[*_version(contract, installed.get("sglang", "")), *_variables(contract, engine)])
    compared = _compare(subject, contract, choice, engine, kv_cache_dtype, found)
    findings = (*found.common, *found.findings(engine))
    attestation = Attestation("sglang", contract.digest, installed, compared, findings)
    if findings:
        raise NotAttested(attestation)
    return attestation


def _compare(subject: Any, contract: Contract, choice: Choice, engine: str, kv_cache_dtype: Any, found: Found) -> int:
    """How many modules, or arguments, were compared."""
    if hasattr(subject, "named_modules"):
        return _compare_model(subject, contract, choice, engine, kv_cache_dtype, found)
    if hasattr(subject, "hf_config"):
        return _compare_model(make_from(subject, "meta").model, contract, choice, engine, kv_cache_dtype, found)
    if hasattr(subject, "model_path"):
        return _compare_arguments(subject, contract, choice, engine, found)
    raise TypeError(f"{type(subject).__name__} is neither a model of SGLang nor its ModelConfig or ServerArgs")


def _version(contract: Contract, installed: str) -> Iterator[Diagnostic]:
    stated = contract.rollout.sglang
    if stated and select_version(stated, (installed,)) is None:
        message = f"SGLang {installed} runs; the contract's artifacts are for SGLang {stated}"
        yield error(DECIDES, message, help=f"install SGLang {stated}, or state the version that runs and compile again")


def _variables(contract: Contract, engine: str) -> Iterator[Diagnostic]:
    wanted = environment(contract)
    for name, value, found in differing_variables(wanted["set"], wanted["unset"], os.environ):
        needed = f"unset {name}" if value is None else f"{name}={value}"
        has = f"without {name}" if found is None else f"with {name}={found}"
        yield error(
            DECIDES, f"{engine} runs {has}; the contract says {needed}", help="source sglang/env.sh before the start"
        )


def _compare_arguments(subject: Any, contract: Contract, choice: Choice, engine: str, found: Found) -> int:
    wanted = dict(arguments(contract, choice))
    for name, (has, needed) in differing(subject, wanted).items():
        message = f"{engine} runs with {name} {has}; the contract says {needed}"
        found.common.append(error(DECIDES, message, help="start the server with sglang/server.yaml"))
    return len(wanted)


# --- a model -----------------------------------------------------------------------------------------


def _compare_model(
    model: Any, contract: Contract, choice: Choice, engine: str, kv_cache_dtype: Any, found: Found
) -> int:
    built = modules(model, {})
    server = _server(model, built, contract, kv_cache_dtype)
    compared = 0
    for holder in _local(model, built, holders(contract, choice)):
        module = built.get(holder.name)
        if module is None:
            for entry in holder.entries:
                found.add(entry, "has no module for", f"there is no `{holder.name}`", "in its model class")
            continue
        compared += 1
        compare_served(contract, server, holder, module, found)
        _compare_codes(holder, module, found)
    if not compared:
        message = f"{engine} runs a {type(model).__name__}, none of whose modules is one of {contract.model.name}'s"
        found.common.append(error(DECIDES, message, help="attest the model that the contract was compiled for"))
    return compared


def _server(model: Any, built: Modules, contract: Contract, kv_cache_dtype: Any) -> Server:
    """The server around a model, from the arguments in force in this process."""
    resolved = settled(boot().current())
    dtype = _model_dtype(built)
    if kv_cache_dtype is None:
        cache = cache_dtype(resolved["kv-cache-dtype"], model, _torch_dtype(dtype))
    else:
        cache = dtype_word(kv_cache_dtype)
    words = (DTYPES.get(cache, cache), DTYPES.get(dtype, dtype))
    return Server(resolved, dict(os.environ), *words, is_blackwell(contract.rollout))


def _model_dtype(built: Modules) -> str:
    """The dtype of what is never quantized: the embedding, or on a later stage a norm."""
    for name, module in built.items():
        if name.endswith(("embed_tokens", "layernorm", "norm")) and "weight" in module.parameters:
            return module.parameters["weight"].dtype
    return ""


def _torch_dtype(word: str) -> Any:
    import torch

    return {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}.get(word)


FUSED_KEYS = ".wk_weights_proj"
"""What an indexer's `wk` and `weights_proj` are on a GPU, where `fuses_indexer_keys` holds."""


def _local(model: Any, built: Modules, found: list[Holder]) -> Iterator[Holder]:
    """The modules that a model must have: those of its own pipeline stage, of the target or the draft model."""
    draft = any(name.startswith(DRAFT) for name in built)
    inner = getattr(model, "model", None)
    first, last = getattr(inner, "start_layer", 0), getattr(inner, "end_layer", None)
    for holder in found:
        layer = holder.entries[0].tensor.layer
        here = layer is None or (layer >= first and (last is None or layer < last))
        if here and holder.draft == draft and _asks(holder, built):
            yield holder


def _asks(holder: Holder, built: Modules) -> bool:
    """Whether a module asks for a method here; a head may be that of another stage, or the embedding.

    An indexer's `wk` may be part of a module that never asks.
    """
    kind = Kind.NEVER if holder.module is None else holder.module.kind
    if holder.name.endswith(".indexer.wk") and holder.name.replace(".wk", FUSED_KEYS) in built:
        return False
    return kind in (Kind.LINEAR, Kind.EXPERTS) or (kind is Kind.HEAD and holder.name in built)


def _compare_codes(holder: Holder, module: Built, found: Found) -> None:
    """The dtype of the weights themselves."""
    for word, wanted in holder.parameters.items():
        has = module.parameters.get(word)
        if word.removeprefix("w13_").removeprefix("w2_") not in CODES or has is None:
            continue
        if has.dtype != wanted.dtype and (wanted.dtype, has.dtype) not in REPACKED:
            for entry in holder.entries:
                after = f"in `{word}` as {has.dtype}; the contract says {wanted.dtype}"
                found.add(entry, "holds", after, "in the parameters of each module")
