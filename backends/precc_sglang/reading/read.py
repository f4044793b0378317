"""Artifacts → what the server would run each tensor as, by the engine's own rules."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from precc.backend import Reading, Unsupported
from precc.contract import Contract
from precc.diagnostics import error
from precc.graph.model import EXPERT, ModelGraph, Tensor
from precc.syntax.words import Role
from precc_sglang import environment as env
from precc_sglang.config import DIGEST_KEY
from precc_sglang.families import (
    FP8_BLOCK,
    FP8_CHANNEL,
    FP8_TENSOR,
    INT4,
    MXFP4,
    MXFP4_WEIGHTS,
    MXFP8,
    NVFP4_STATIC,
    NVFP4_TOKEN,
    NVFP4_WEIGHTS,
    UNQUANTIZED,
)
from precc_sglang.grammar import Disagreement
from precc_sglang.model_class import ModelClass
from precc_sglang.names import Kind, Module, class_of, module_of
from precc_sglang.paths import CONFIG_PATH, ENVIRONMENT_PATH, LEGACY_PATH, SERVER_PATH
from precc_sglang.reading.configs import Answer, Config, Fp8, Reader, Unquantized, config_of
from precc_sglang.reading.files import Files, open_files
from precc_sglang.reading.routing import Route, route
from precc_sglang.refusal import unreadable
from precc_sglang.served import CACHED_PARTS, EXACT, SCALING, Served, has_dtype
from precc_sglang.server import BESIDE_FP8, BLOCK_BACKENDS, DRAFT_RUNNER, PRECISION, RUNNERS, TRTLLM, UNFUSED
from precc_sglang.versions import Release, is_blackwell, release_of

STORED = {
    family.name: family.stored
    for family in (
        MXFP8,
        FP8_BLOCK,
        FP8_TENSOR,
        FP8_CHANNEL,
        NVFP4_TOKEN,
        NVFP4_STATIC,
        NVFP4_WEIGHTS,
        MXFP4_WEIGHTS,
        MXFP4,
        INT4,
    )
}

_SEPARATE_SHARED = frozenset({*TRTLLM, "flashinfer_cutedsl", "experimental_sgl_trtllm"})
"""The expert backends that keep shared experts apart by themselves."""

_FOLDED_EXPERTS = 256
"""The number of routed experts for which a class that counts them folds the shared one in."""


def read_back(contract: Contract, artifacts: Mapping[str, str]) -> Sequence[Reading]:
    """This reads artifacts as the server of a model would: one answer an entry, in order. Raises Unsupported.

    Free, because nothing that is served follows from it: the expert and dense backends of formats that any of them
    runs as decided (`RUNNERS` and `BLOCK_BACKENDS` have the others), ModelOpt's `producer`, the names of config groups,
    and the entries of a list for modules that never ask for a method (a router, an LM head that the method cannot
    quantize), which stand there for other readers.
    """
    server = Server(open_files(artifacts, contract), contract)
    return [server.reading(tensor) for tensor in contract.tensors]


@dataclass
class Server:
    """One server, started with some files for one model. Of the contract only its model and layout are used."""

    files: Files
    contract: Contract

    def __post_init__(self) -> None:
        self.answers: dict[Module, Answer] = {}
        _agree(self.files)

    @property
    def model(self) -> ModelGraph:
        return self.contract.model

    @property
    def release(self) -> Release:
        return release_of(self.contract.rollout)

    @cached_property
    def route(self) -> Route:
        return route(self.files, self.release)

    @cached_property
    def built(self) -> ModelClass:
        found = class_of(self.model, self.route.method.removesuffix(" online"))
        if found is None:
            raise unreadable(f"SGLang's class for {self.model.architecture} is not modelled")
        return found

    @cached_property
    def config(self) -> Config:
        return config_of(self.route, Reader(self.release, self.built, self._fp8_ignored))

    @cached_property
    def _draft_config(self) -> Config:
        """The same config as the draft class reads it: with its own renaming, or dropped."""
        if self.built.drops_nvfp4_draft and self.route.method == "modelopt_fp4":
            return Unquantized(f"the draft class drops a ModelOpt FP4 config; {self.route.path}")
        reader = Reader(self.release, self.built, self._fp8_ignored, self.built.draft_mapper)
        return config_of(self.route, reader)

    @cached_property
    def _fp8_ignored(self) -> list[str]:
        words = self.files.variables.get(env.FP8_IGNORED, "").split(",")
        return [word.strip() for word in words if word.strip()]

    # --- one tensor ---------------------------------------------------------------------------------

    def reading(self, tensor: Tensor) -> Reading:
        """What one tensor is served as, and the line that says so."""
        module = module_of(tensor, self.built)
        if module is None:
            return Reading(Served(UNQUANTIZED.name), "no GEMM operand: no quantization method applies")
        module = self._folded(tensor, module)
        if module not in self.answers:
            self.answers[module] = self._answer(module, tensor)
        answer = self.answers[module]
        cache, said = self._cache if tensor.part in CACHED_PARTS else ("", "")
        because = answer.because + (f"; the KV cache in {said}" if said else "")
        return Reading(self._served(answer.method, module, cache), because)

    def _answer(self, module: Module, tensor: Tensor) -> Answer:
        if module.kind is Kind.NEVER:
            return Answer(UNQUANTIZED.name, f"{module.prefix} is built without a quantization config")
        answer = self._from_config(module, tensor)
        if answer.method == MXFP8.name and self.files.truthy(env.MXFP8_TO_BLOCKS):
            return Answer(FP8_BLOCK.name, f"{ENVIRONMENT_PATH}, {env.MXFP8_TO_BLOCKS}")
        if module.last == "q_b_proj" and self.files.truthy(env.FP8_QUERIES):
            return Answer(FP8_BLOCK.name, f"{ENVIRONMENT_PATH}, {env.FP8_QUERIES}")
        return answer

    def _from_config(self, module: Module, tensor: Tensor) -> Answer:
        # The LM head of a draft model is built before its class drops the config.
        dropped = module.draft and module.kind is not Kind.HEAD
        config = self._draft_config if dropped else self.config
        try:
            answers = [config.method_of(one) for one in self._every_expert(module, tensor, config)]
        except Disagreement as problem:
            raise Unsupported(
                error("P201", f"SGLang refuses to start: {problem}", help="give all members one decision")
            ) from None
        except re.error as problem:
            raise unreadable(f"an entry of {self.route.path} is no pattern: {problem}") from None
        apart = next((answer for answer in answers if answer.method != answers[0].method), None)
        return Answer(f"{answers[0].method} and {apart.method}", apart.because) if apart else answers[0]

    def _every_expert(self, module: Module, tensor: Tensor, config: Config) -> list[Module]:
        """A module that is built once an expert: one of them stands for all unless the config numbers experts."""
        if EXPERT not in module.prefix or tensor.experts is None:
            return [module]
        words = [*getattr(config, "entries", ()), *getattr(config, "layers", ())]
        numbered = any(re.search(r"experts\.\d", word) for word in words)
        chosen = tensor.experts if numbered else tensor.experts[:1]
        return [_of_expert(module, expert) for expert in chosen]

    def _folded(self, tensor: Tensor, module: Module) -> Module:
        """A shared expert that the class folds into the expert layer takes that layer's method."""
        if tensor.role is not Role.SHARED_EXPERTS or module.kind is Kind.NEVER or not self._folds_shared:
            return module
        parent = module.prefix.split(".shared_expert")[0]
        return Module(f"{parent}.experts", Kind.EXPERTS, (f"{parent}.experts",), module.draft)

    @cached_property
    def _folds_shared(self) -> bool:
        arguments, how = self.files.arguments, self.built.folds_shared
        alone = arguments.get(UNFUSED) or arguments.get("ep-size", 1) > 1
        if not how or alone or arguments.get("moe-runner-backend") in _SEPARATE_SHARED:
            return False
        entries = getattr(self.config, "entries", ())
        if how == "count":
            if self.model.expert_count != _FOLDED_EXPERTS or self.model.config.get("n_shared_experts") != 1:
                return False
            vetoed = any("shared_expert" in entry and "shared_expert_gate" not in entry for entry in entries)
            return not (self.route.method == "modelopt_fp4" and vetoed)
        widths = (self.model.config.get(f"{kind}_intermediate_size") for kind in ("moe", "shared_expert"))
        return how == "any" or len({*widths}) == 1

    # --- how inputs are scaled, and the KV cache ----------------------------------------------------

    def _served(self, method: str, module: Module, cache: str) -> Served:
        name = method.split(" group ")[0]
        if name == NVFP4_STATIC.name and module.kind is Kind.EXPERTS and self.files.truthy(env.PER_TOKEN):
            name = method = NVFP4_TOKEN.name
        if name == MXFP4_WEIGHTS.name and isinstance(self.config, Fp8):
            name = method = self._mxfp4_beside_fp8
        dtype = self._dtype if has_dtype(module) else ""
        return Served(method, STORED.get(name, ()), self._inputs(name, module), cache, dtype)

    def _inputs(self, name: str, module: Module) -> str:
        if name in _MARLIN and self.files.truthy(env.FP8_MARLIN):
            return "bf16"
        if name == FP8_BLOCK.name:
            return self._block_scales(module)
        words = SCALING.get(name, "")
        if name in (NVFP4_TOKEN.name, NVFP4_STATIC.name):
            if not all(self.files.on(variable) for variable in env.EXACT_MATH):
                words = words.replace(EXACT, "fast math")
            words += self._adaptive()
        runner = self.files.arguments.get(_backend_of(module, self.files.arguments), "auto")
        own = BESIDE_FP8.get(name) if isinstance(self.config, Fp8) else None
        if module.kind is Kind.EXPERTS and runner not in (own or RUNNERS.get(name, (runner,))):
            words += f", as the expert backend {runner} may"
        return words

    @property
    def _mxfp4_beside_fp8(self) -> str:
        """MXFP4 by what its kernels make of inputs: Blackwell's round them unless they are told not to."""
        precision = self.files.arguments.get(PRECISION, "default")
        if precision == "fp8":
            return "mxfp4 with fp8 inputs"
        rounds = is_blackwell(self.contract.rollout) and precision == "default"
        return MXFP4.name if rounds else MXFP4_WEIGHTS.name

    def _adaptive(self) -> str:
        if not self.files.on(env.ADAPTIVE):
            return ""
        maximum = 256 if self.files.on(env.ADAPTIVE_MAX) else 448
        error_words = self.files.variables.get(env.ADAPTIVE_ERROR, "MAE").lower()
        fast = " fast" if self.files.on(env.ADAPTIVE_FAST) else ""
        return f", four_over_six {error_words}{fast} max {maximum}"

    def _block_scales(self, module: Module) -> str:
        """The type of block FP8's scales: the backend's, on Blackwell; the config's word for dense layers, before."""
        config = self.config
        declared = "" if not isinstance(config, Fp8) else "pow2 scales" if config.pow2 else "fp32 scales"
        if not is_blackwell(self.contract.rollout):
            heard = declared and module.kind is not Kind.EXPERTS and self.release.declared_scales
            return declared if heard else "fp32 scales"
        backend = str(self.files.arguments.get(_backend_of(module, self.files.arguments), "auto"))
        scales = next((f"{word} scales" for word, (_, known) in BLOCK_BACKENDS.items() if backend in known), "")
        if not scales:
            return f"scales as the backend {backend} has them"
        return scales if declared in ("", scales) else f"{scales}, declared {declared}"

    @cached_property
    def _dtype(self) -> str:
        asked = str(self.files.arguments.get("dtype", "auto"))
        return _DTYPES.get(asked, asked)

    @cached_property
    def _cache(self) -> tuple[str, str]:
        """The KV cache's format, and what says so. The config must declare the same: other readers have only that.

        `auto` is left to the engine: by model, GPU and config it may be either.
        """
        asked, declared = str(self.files.arguments.get("kv-cache-dtype", "auto")), self.config.cache
        known = _CACHES.get(asked, asked)
        if declared in (None, known):
            return known, f"{SERVER_PATH}, kv-cache-dtype"
        return f"{known}, declared {declared},", f"{SERVER_PATH}, kv-cache-dtype, and {self.route.path}"


def _backend_of(module: Module, arguments: Mapping[str, Any]) -> str:
    """The argument that chooses the kernels of a module."""
    if module.kind is not Kind.EXPERTS:
        return "fp8-gemm-backend"
    return DRAFT_RUNNER if module.draft and DRAFT_RUNNER in arguments else "moe-runner-backend"


_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32"}
_CACHES = {"bf16": "bf16", "bfloat16": "bf16", "fp8_e4m3": "fp8"}
_MARLIN = frozenset({MXFP8.name, FP8_BLOCK.name, FP8_TENSOR.name, FP8_CHANNEL.name})
"""What Marlin would run with unquantized inputs."""


def _of_expert(module: Module, expert: int) -> Module:
    def numbered(name: str) -> str:
        return name.replace(EXPERT, str(expert))

    return module._replace(prefix=numbered(module.prefix), shards=tuple(map(numbered, module.shards)))


def _agree(files: Files) -> None:
    """Both configs stand in one checkpoint: two that differ are read by different tools."""
    if files.config is None or files.legacy is None:
        return
    section = files.legacy.get("quantization")
    section = section if isinstance(section, dict) else {}
    beyond = {*files.legacy} - {"producer", "quantization", DIGEST_KEY} | {*section} - {
        "exclude_modules",
        *_SHARED_KEYS,
    }
    if beyond:
        raise unreadable(f"{LEGACY_PATH} has `{min(beyond)}`, which {CONFIG_PATH} cannot say", "compile again")
    pairs = [("ignore", "exclude_modules"), *((key, key) for key in _SHARED_KEYS)]
    apart = next((key for key, there in pairs if files.config.get(key) != section.get(there)), None)
    if apart is not None:
        raise unreadable(f"{CONFIG_PATH} and {LEGACY_PATH} differ about `{apart}`", "compile again")


_SHARED_KEYS = ("quant_algo", "kv_cache_quant_algo", "group_size", "quantized_layers")
