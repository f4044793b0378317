"""What `convert` writes is loaded, and holds the numbers that were meant: every ready policy on nine families.

SGLang reads the folder through its own front door, over poison. transformers 5.19 reads these on a CPU, into BF16:

- what is not quantized;
- compressed-tensors' packed INT4, which that library decompresses;
- `fp8` and `mxfp8`, dequantized for want of a GPU; it asks for accelerate before it does. Where 128 does not divide
  the rows of an FP8 weight, it takes blocks to be as many as scales and of one height, and applies wrong scales.

It does not know `modelopt` and `modelopt_mixed` (NVFP4 experts): it goes on as if nothing were quantized, and stops at
codes half as wide as its parameters with "RuntimeError: You set `ignore_mismatched_sizes` to `False`".
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from converter.cells import Cells, Converted
from converter.checkpoints import load_checkpoint, write_shards
from converter.loading import sglang
from proof.subjects import IN_FULL, Subject, in_full, policies

from precc_sglang.upstream.wire import Cast

pytestmark = pytest.mark.slow

NOT_KNOWN = {"modelopt", "modelopt_mixed"}
STOPS = "RuntimeError: You set `ignore_mismatched_sizes` to `False`"
WANTS_ACCELERATE = "ImportError: Loading an FP8 quantized model requires accelerate"


@pytest.fixture(scope="module")
def cells() -> Iterator[Cells]:
    """One live SGLang, one process with transformers, and one thread here beside them."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with (
        TemporaryDirectory() as root,
        sglang() as server,
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as reader,
    ):
        yield Cells(Path(root), server, reader)
    torch.set_num_threads(threads)


@pytest.fixture(params=in_full(), ids=str)
def converted(request: pytest.FixtureRequest, cells: Cells) -> Converted:
    """One policy on one family, where that compiles."""
    found = cells[request.param]
    if isinstance(found, str):
        pytest.skip(found)
    return found


def test_sglang_loads_what_is_written(converted: Converted) -> None:
    """Every parameter is written from end to end, every tensor read, and no value changes its type."""
    assert converted.lost == []


def test_transformers_reads_what_is_written(converted: Converted) -> None:
    """The same model as of the dequantized numbers, byte for byte; what it cannot read it stops at."""
    found = converted.read
    if converted.method in NOT_KNOWN:
        assert isinstance(found, str)
        assert found.startswith(STOPS)
        return
    if isinstance(found, str) and found.startswith(WANTS_ACCELERATE):
        pytest.skip(f"transformers: {found}")
    assert isinstance(found, dict), found
    # Its classes have no next-token layer.
    draft = f"model.layers.{converted.contract.model.layers}."
    drafted = [name for name in found["unexpected"] if name.startswith(draft)]
    misread = [name for name in found["different"] if name in converted.in_partial_blocks]
    assert found == {"missing": [], "unexpected": drafted, "different": misread}


def test_the_numbers_are_those_of_the_source(converted: Converted) -> None:
    """Bytes as the quantizer makes them; dequantized, the nearest numbers of the format, by float64."""
    assert converted.wrong == []


def test_every_policy_for_sglang_is_loaded_somewhere(cells: Cells) -> None:
    """Each quantizes something in one, in all formats together; so does each family but Llama, whose class cannot."""
    found = {subject: cells[subject] for subject in in_full()}
    loaded = {subject: made.formats for subject, made in found.items() if isinstance(made, Converted)}
    quantized = {subject: formats for subject, formats in loaded.items() if formats}
    assert {subject.policy for subject in quantized} == policies().keys() - {"bf16", "nvfp4_pretraining"}
    assert {subject.family for subject in quantized} == {*IN_FULL} - {"llama"}
    assert set[str]().union(*quantized.values()) == {"fp8_block", "mxfp8", "nvfp4", "int4"}


# --- what would be seen ------------------------------------------------------------------------------


@pytest.fixture
def worse(cells: Cells, tmp_path: Path) -> Converted:
    """A good conversion, less a scale, with a weight of another type."""
    good = cells[Subject("mxfp8_e2e", "qwen3")]
    assert isinstance(good, Converted)
    weights = load_checkpoint(good.folder)
    del weights["model.layers.0.self_attn.k_proj.weight_scale_inv"]
    attention_output = "model.layers.0.self_attn.o_proj.weight"
    weights[attention_output] = weights[attention_output].to(torch.bfloat16)
    shutil.copytree(good.folder, tmp_path / "worse")
    write_shards(tmp_path / "worse", weights, 1)
    return Converted(good.case, tmp_path / "worse", good.server, good.reader)


def test_a_scale_that_is_missing_and_a_weight_of_another_type_would_be_seen(worse: Converted) -> None:
    """SGLang itself says nothing of either."""
    name = "model.layers.0.self_attn.o_proj.weight"
    assert worse.lost == [
        "model.layers.0.self_attn.qkv_proj.weight_scale_inv is not written",
        f"{Cast(name, name, 'BF16', 'F8_E4M3')} is converted",
    ]


def test_a_code_next_to_the_right_one_would_be_seen(cells: Cells, tmp_path: Path) -> None:
    """By its bytes, and as a number that is not the nearest."""
    good = cells[Subject("mxfp8_e2e", "qwen3")]
    assert isinstance(good, Converted)
    made = Converted(good.case, good.folder, good.server, good.reader)
    name = "model.layers.1.mlp.down_proj.weight"
    codes = made.weights[name].view(torch.uint8)
    codes[0, 0] ^= 1
    assert made.wrong == [f"{name}: 1 elements have a nearer value", f"{name} has other bytes"]
