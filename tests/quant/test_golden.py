"""What upstream's own arithmetic stored, byte for byte, through both paths of a CPU."""

from __future__ import annotations

import pytest
import torch
from quant.specs import SPECS
from quant.vectors import FOLDER, Vector, vectors
from quant.weights import by_reference, raw
from torch import Tensor

from precc.formats import FourOverSix, Quantization
from precc.quant import NotFinite, interchange, quantize
from precc.quant.packing import unpack_int4
from precc.quant.reference import Parts

FILES = [
    "mxfp8",
    "nvfp4_per_tensor",
    "nvfp4_per_token",
    "nvfp4_2d",
    "nvfp4_4over6_mae_256",
    "nvfp4_4over6_mse_448",
    "fp8_block_fp32",
    "fp8_block_pow2",
    "fp8_tensor",
    "fp8_channel",
    "int4_g32",
    "int4_g128",
]
OTHER_WRITERS = {
    "int4_g32_ct": lambda vector: interchange.compressed_tensors_int4(vector.weight, 32),
    "int4_g128_ct": lambda vector: interchange.compressed_tensors_int4(vector.weight, 128),
    "nvfp4_4over6_mse_448_errfast": lambda vector: interchange.transformer_engine_fast_error(
        vector.weight, _amax_of(vector), FourOverSix("mse", 448)
    ),
    "nvfp4_online_sglang": lambda vector: interchange.sglang_online(vector.weight, _amax_of(vector)),
}
_TINY = {"allbf16_sorted", "bf16_subnormal", "tiny_1e-37", "nan"}
FLASHINFER_DIFFERS = {
    "mxfp8": {*_TINY, "inf"},
    "nvfp4_per_tensor": {*_TINY, "allbf16_shuffled"},
    "nvfp4_per_token": {*_TINY, "allbf16_shuffled"},
}
SPILLS = {"maxes", "allbf16_shuffled"}
"""Where Miles' INT4 writes a code beyond ±7, because code · scale overflows BF16: it spills into its neighbours."""


@pytest.mark.parametrize("name", FILES)
def test_the_reference_writes_upstream_bytes(name: str) -> None:
    """NaN and Inf included, which follow TransformerEngine's kernels."""
    for vector in vectors(name):
        if name != "fp8_channel" or vector.is_finite:  # torch's amax, in Miles' converter, does not ignore NaN
            compare(by_reference(vector.weight, SPECS[name], _amax(vector, SPECS[name])), vector, name)


@pytest.mark.parametrize("name", FILES)
def test_the_entrance_writes_upstream_bytes(name: str) -> None:
    """Through the compiled kernels, where numba is installed; what is not finite is refused."""
    for vector in vectors(name):
        given = _amax(vector, SPECS[name])
        if vector.is_finite:
            compare(quantize(vector.weight, SPECS[name], amax=given), vector, name)
        else:
            with pytest.raises(NotFinite, match="not finite"):
                quantize(vector.weight, SPECS[name], amax=given)
            if name != "fp8_channel":
                compare(quantize(vector.weight, SPECS[name], amax=given, finite=False), vector, name)


@pytest.mark.parametrize("name", OTHER_WRITERS)
def test_other_writers_are_known_to_the_byte(name: str) -> None:
    """compressed-tensors' INT4, the fast error, SGLang's online NVFP4: finite weights."""
    for vector in vectors(name):
        if vector.is_finite:
            compare(OTHER_WRITERS[name](vector), vector, name)


def test_every_golden_file_is_used() -> None:
    """A file that no test reads proves nothing."""
    assert {path.stem for path in FOLDER.glob("*.safetensors")} == {"inputs", *FILES, *OTHER_WRITERS}


def test_int4_leaves_out_only_what_spills() -> None:
    """Our code where Miles' differs: ±7, in a group whose largest element times its scale overflows BF16."""
    for name in ("int4_g32", "int4_g128"):
        found = [_spilled(vector, SPECS[name]) for vector in vectors(name) if vector.category in SPILLS]
        assert sum(found) > 0


@pytest.mark.parametrize("name", FLASHINFER_DIFFERS)
def test_flashinfer_differs_only_where_numbers_are_tiny_or_not_finite(name: str) -> None:
    """Its kernels flush subnormals and drop NaN; everything else is TransformerEngine's to the byte."""
    assert {vector.category for vector in vectors(name) if vector.flashinfer} == FLASHINFER_DIFFERS[name]


def compare(parts: Parts, vector: Vector, name: str) -> None:
    """This asserts that parts are what a vector stores; INT4 words that spill are looked at above."""
    where = f"{name}, {vector.category}"
    scale = parts["block_scale"] if "block_scale" in parts else parts["outer_scale"]
    assert _stored(scale, vector.scale) == raw(vector.scale), f"{where}: scales"
    if vector.outer is not None:
        assert _stored(parts["outer_scale"], vector.outer) == raw(vector.outer), f"{where}: outer scale"
    if vector.category not in SPILLS or name not in ("int4_g32", "int4_g128"):
        assert _stored(parts["codes"], vector.data) == raw(vector.data), f"{where}: codes"


def _stored(part: Tensor, wanted: Tensor) -> bytes:
    """The bytes of a part that has the size of the stored tensor; bytes stand for E4M3 and E8M0 there."""
    assert part.element_size() == wanted.element_size()
    assert part.dtype == wanted.dtype or wanted.dtype == torch.uint8
    assert part.numel() == wanted.numel()
    return raw(part)


def _amax(vector: Vector, spec: Quantization) -> Tensor | None:
    """That of the whole weight, of which the file keeps the first rows."""
    return vector.amax if spec.scope == "per_tensor" else None


def _amax_of(vector: Vector) -> Tensor:
    return vector.weight.float().abs().amax() if vector.amax is None else vector.amax


def _spilled(vector: Vector, spec: Quantization) -> int:
    assert spec.block is not None
    parts = quantize(vector.weight, spec)
    differing = (parts["codes"] != vector.data).nonzero()
    codes = unpack_int4(parts["codes"]).float()
    scale = parts["block_scale"].float().repeat_interleave(spec.block[1], -1)
    overflows = (codes * scale).to(torch.bfloat16).isinf()
    for row, word in differing.tolist():
        assert overflows[row, 8 * word : 8 * word + 8].any()
    return len(differing)
