"""How SGLang would run one tensor, in the words of `served`, from what its own code built and settled on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from precc.contract import Entry
from precc_sglang import environment as env
from precc_sglang.families import FP8_BLOCK, NVFP4_STATIC, NVFP4_TOKEN
from precc_sglang.names import Kind, Module
from precc_sglang.served import CACHED_PARTS, EXACT, SCALING, Served, has_dtype
from precc_sglang.server import BESIDE_FP8, BLOCK_BACKENDS, DRAFT_RUNNER, RUNNERS
from precc_sglang.upstream.wire import Built, Seen

DTYPES = {"BF16": "bf16", "F16": "fp16", "F32": "fp32", "F8_E4M3": "fp8"}


@dataclass(frozen=True)
class Server:
    """What holds for the whole server: the backends, the environment, the types; and whether the GPU is a Blackwell."""

    backends: Mapping[str, str]
    variables: Mapping[str, str]
    cache: str
    dtype: str
    blackwell: bool

    @classmethod
    def of(cls, seen: Seen, blackwell: bool) -> Server:
        """The server that a worker saw."""
        cache, dtype = DTYPES.get(seen.cache, seen.cache), DTYPES.get(seen.dtype, seen.dtype)
        return cls(seen.resolved, seen.environment, cache, dtype, blackwell)

    def runs(self, entry: Entry, module: Module, built: Built, wanted: Served) -> Served:
        """How a tensor is run. A method's stored parts are those that it has in the table, or else what was built."""
        stored = wanted.stored if built.method == wanted.method else tuple(_parts(built))
        cache = self.cache if entry.tensor.part in CACHED_PARTS else ""
        dtype = self.dtype if has_dtype(module) else ""
        return Served(built.method, stored, self._inputs(built, module, wanted), cache, dtype)

    def _inputs(self, built: Built, module: Module, wanted: Served) -> str:
        name = built.method.split(" group ")[0]
        if built.marlin:
            return "bf16"
        if name == FP8_BLOCK.name:
            return self._block_scales(module, wanted)
        words = SCALING.get(name, "")
        if name in (NVFP4_TOKEN.name, NVFP4_STATIC.name):
            exact = all(self.variables.get(variable) == "1" for variable in env.EXACT_MATH)
            words = (words if exact else words.replace(EXACT, "fast math")) + self._adaptive()
        runner = self.backends.get(self._runner_of(module), "auto")
        own = BESIDE_FP8.get(name) if self.backends.get("quantization") == "fp8" else None
        if module.kind is Kind.EXPERTS and runner not in (own or RUNNERS.get(name, (runner,))):
            words += f", as the expert backend {runner} may"
        return words

    def _adaptive(self) -> str:
        if self.variables.get(env.ADAPTIVE) != "1":
            return ""
        maximum = 256 if self.variables.get(env.ADAPTIVE_MAX) == "1" else 448
        fast = " fast" if self.variables.get(env.ADAPTIVE_FAST) == "1" else ""
        return f", four_over_six {self.variables.get(env.ADAPTIVE_ERROR, 'MAE').lower()}{fast} max {maximum}"

    def _block_scales(self, module: Module, wanted: Served) -> str:
        """The type of block FP8's scales: that of the backend that SGLang settled on; before Blackwell of any."""
        if not self.blackwell:
            return wanted.inputs
        key = self._runner_of(module) if module.kind is Kind.EXPERTS else "fp8-gemm-backend"
        backend = self.backends.get(key, "auto")
        scales = next((word for word, (_, known) in BLOCK_BACKENDS.items() if backend in known), None)
        return f"{scales} scales" if scales else f"scales as the backend {backend} has them"

    def _runner_of(self, module: Module) -> str:
        """The argument that chooses the kernels of an expert layer."""
        drafts = module.draft and self.backends.get(DRAFT_RUNNER, "None") not in _UNSAID
        return DRAFT_RUNNER if drafts else "moe-runner-backend"


_UNSAID = ("None", "auto")


def _parts(built: Built) -> Iterator[str]:
    for word, parameter in built.parameters.items():
        yield f"{word} {parameter.dtype}"
