"""Whether routed experts are in MXFP4 beside weights in block FP8, which three places may say.

SGLang's key in the `quantization_config` counts first, then what the shards of the folder store, then DeepSeek's field
in `config.json`. SGLang 0.5.23 itself reads the first two, and takes experts for MXFP4 where it finds neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from precc.diagnostics import Diagnostic, error, info
from precc.graph.errors import ModelError
from precc.graph.headers import read_headers
from precc.graph.model import ModelGraph, Tensor
from precc.graph.shards import check_file, weight_files
from precc.importing import schemes
from precc.importing.checkpoint import Section, model_config
from precc.importing.reading import NOTHING, Decided, Source, Unimportable
from precc.records import field, record
from precc.syntax.words import Role

KEY, FIELD = "routed_experts_quant_method", "expert_dtype"

BY_HEADERS = frozenset({"DeepseekV4ForCausalLM"})
"""The classes for which SGLang looks into the headers: their checkpoints have had experts in both."""

_PACKED, _FP8 = ("I8", "U8", "F4"), ("F8_E4M3",)


@record
class Experts:
    """What is said about them: `method` by the section, `stored` by the headers (name → dtype), `dtype` by the model.

    None, and an empty `stored`, where nothing is said.
    """

    method: str | None = None
    stored: Mapping[str, str] = field(default=NOTHING, repr=False)
    dtype: str | None = None

    def are_mxfp4(self, tensor: Tensor) -> bool | None:
        """Whether a tensor's experts are in MXFP4; None where no place says it."""
        if tensor.role is not Role.ROUTED_EXPERTS or not tensor.is_gemm:
            return False
        if self.method is not None:
            return self.method == "mxfp4"
        there = self.held(tensor)
        if there in (*_PACKED, *_FP8):
            return there in _PACKED
        return None if self.dtype is None else self.dtype == "fp4"

    def held(self, tensor: Tensor) -> str | None:
        """The dtype of a tensor in the shards, of the first of several experts."""
        return self.stored.get(next(tensor.names()))

    def differ(self, tensor: Tensor) -> bool:
        """Whether the shards hold a tensor otherwise than the model's configuration says."""
        there = self.held(tensor) if tensor.role is Role.ROUTED_EXPERTS and tensor.is_gemm else None
        return self.dtype is not None and there in (_FP8 if self.dtype == "fp4" else _PACKED)


def experts_of(source: Source, section: Section, graph: ModelGraph) -> Experts:
    """What a source says about a model's routed experts. Raises Unimportable for shards that cannot be read."""
    method, dtype = section.content.get(KEY), (model_config(source) or {}).get(FIELD)
    stored = _stored(source) if graph.architecture in BY_HEADERS else {}
    return Experts(_word(method), stored, _word(dtype))


def _word(said: Any) -> str | None:
    return None if said is None else str(said).lower()


def _stored(source: Source) -> dict[str, str]:
    """The dtype of every tensor in the shards of a folder, of those that are there."""
    folder = Path(source.path)
    try:
        files = weight_files(folder) if source.is_folder else []
        for file in files:
            check_file(file, folder)
        return {name: stored.dtype for name, stored in read_headers(files).items()}
    except ModelError as problem:
        raise Unimportable([error("P901", problem.message, help=problem.help)]) from None


def inputs_of_mxfp4(decisions: Iterable[Decided]) -> Iterator[Diagnostic]:
    """What is told where a source has experts in MXFP4."""
    if any(decision == schemes.MXFP4 for _, decision in decisions):
        yield info(OPEN, _INPUTS)


OPEN = "P910"
_INPUTS = (
    "no file of a checkpoint says what experts in MXFP4 are multiplied with: their inputs are taken in MXFP8, as "
    "SGLang has them on Blackwell"
)
