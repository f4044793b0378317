"""Checkpoints through `convert`: every tensor is what its quantizer makes of it, whoever does the work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from converter.checkpoints import OTHER_FILES, content, load_checkpoint, stored_bytes, write_shards
from converter.conversions import Case, case, compile_for, expected
from rollout.support import SMALL
from safetensors import safe_open

from precc_converter import convert

QUARTER = 1 << 20
"""A shard size that splits the small models into a handful of files."""

SERVED = "targets: sglang, converter\n"
MIX = f"{SERVED}default: mxfp8\n@routed_experts: nvfp4 per_token\n@mla?, @shared_experts?, layers[0]: bf16\n"
ABSORBED = "q_a_proj?, kv_a_proj_with_mqa?, kv_b_proj?: bf16\n"
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "nvfp4_rl": ("qwen3_moe", "nvfp4_rl", {}),
    "four over six": ("qwen3_moe", "nvfp4_four_over_six", {}),
    "a mix": ("qwen3_moe", MIX, {}),
    "mxfp8": ("glm4_moe", "mxfp8_e2e", {}),
    "fp8 blocks": ("qwen3", "fp8_block", {}),
    "fp8 blocks with fp32 scales": ("qwen3", f"{SERVED}default: fp8_block scales fp32\n", {}),
    "fp8 tensors": ("qwen3", "targets: converter\ndefault: weight fp8, train bf16\n", {}),
    "fp8 channels": ("qwen3", f"{SERVED}default: weight fp8 per_channel, input fp8 per_token, train bf16\n", {}),
    "int4": ("qwen3_moe", "int4_w4a16", {}),
    "bf16": ("llama", "bf16", {}),
    "an fp16 source": ("qwen3_moe", "nvfp4_rl", {"dtype": "float16"}),
    "an fp32 source": ("qwen3_moe", "nvfp4_rl", {"dtype": "float32"}),
    "one file": ("qwen3_moe", "nvfp4_rl", {"shards": 1}),
    "an fp8 source into nvfp4": ("deepseek_v3", "nvfp4_rl", {"fp8": True}),
    "an fp8 source into mxfp8": ("deepseek_v3", f"{SERVED}default: mxfp8\n{ABSORBED}", {"fp8": True}),
    "an fp8 source into bf16": ("deepseek_v3", "bf16", {"fp8": True}),
    "a power-of-two fp8 source into nvfp4": ("deepseek_v3", "nvfp4_rl", {"fp8": True, "power_of_two": True}),
}


@pytest.mark.parametrize("name", CASES)
def test_every_tensor_is_what_its_quantizer_makes_of_it(name: str, tmp_path: Path) -> None:
    """Names, dtypes, shapes and bytes; gate and up share what their outer scale is made of, across shards."""
    model, policy, options = CASES[name]
    made = case(tmp_path, SMALL[model], policy, **options)
    written = load_checkpoint(made.convert(tmp_path / "out"))
    wanted = expected(made.contract, made.source)
    assert stored_bytes(written) == stored_bytes(wanted)


@pytest.fixture(scope="module")
def experts(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A small mixture of experts, its routed experts in NVFP4."""
    return case(tmp_path_factory.mktemp("experts"), SMALL["qwen3_moe"], "nvfp4_rl", shards=3)


@pytest.fixture(scope="module")
def converted(experts: Case, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """It, converted into several shards by this process."""
    return experts.convert(tmp_path_factory.mktemp("converted") / "out", max_shard_size=QUARTER)


def test_any_number_of_workers_writes_the_same_files(experts: Case, converted: Path, tmp_path: Path) -> None:
    """Where a byte stands follows from names and sizes, never from who came first."""
    assert content(experts.convert(tmp_path / "out", workers=3, max_shard_size=QUARTER)) == content(converted)


@pytest.mark.parametrize("size", [1, 300_000, 10**12])
def test_any_shard_size_writes_the_same_tensors(experts: Case, converted: Path, tmp_path: Path, size: int) -> None:
    """One unit a file, several files, or one."""
    other = experts.convert(tmp_path / "out", max_shard_size=size)
    assert stored_bytes(load_checkpoint(other)) == stored_bytes(load_checkpoint(converted))


def test_shards_of_the_source_make_no_difference(experts: Case, converted: Path, tmp_path: Path) -> None:
    """Gate and up share their scale wherever they lie."""
    source = tmp_path / "source"
    source.mkdir()
    for name in ("config.json", *OTHER_FILES):
        (source / name).write_bytes((experts.source / name).read_bytes())
    write_shards(source, load_checkpoint(experts.source), 7)
    made = Case(source, experts.compiled).convert(tmp_path / "out", max_shard_size=QUARTER)
    assert content(made) == content(converted)


def test_shards_are_no_larger_than_asked_and_an_index_lists_them(converted: Path) -> None:
    """Each tensor stands in the file that the index names."""
    index = json.loads((converted / "model.safetensors.index.json").read_text())
    files = sorted(file.name for file in converted.glob("*.safetensors"))
    assert len(files) > 2
    assert files == sorted(set(index["weight_map"].values()))
    total = 0
    for file in files:
        with safe_open(converted / file, "pt") as shard:
            names = list(shard.keys())
            assert {index["weight_map"][name] for name in names} == {file}
            size = sum(shard.get_tensor(name).nbytes for name in names)
        assert size <= QUARTER
        total += size
    assert index["metadata"]["total_size"] == total


def test_tensors_are_aligned_to_their_elements(converted: Path) -> None:
    """A loader may map them as they lie."""
    for file in converted.glob("*.safetensors"):
        data = file.read_bytes()
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length])
        header.pop("__metadata__")
        assert length % 8 == 0
        wide = {"F32": 4, "BF16": 2}
        assert [n for n, e in header.items() if e["data_offsets"][0] % wide.get(e["dtype"], 1)] == []


def test_the_contract_is_named_in_every_shard_and_in_the_configuration(experts: Case, converted: Path) -> None:
    """So that a server, an audit or a person can tell what it was made for."""
    digest = experts.contract.digest
    for file in converted.glob("*.safetensors"):
        with safe_open(file, "pt") as shard:
            metadata = shard.metadata()
            assert set(metadata.pop("precc_crc32")) <= set("0123456789abcdef")
            assert metadata == {"format": "pt", "precc_contract": digest}
    assert json.loads((converted / "config.json").read_text())["quantization_config"]["precc_contract"] == digest
    assert json.loads((converted / "hf_quant_config.json").read_text())["precc_contract"] == digest


def test_the_server_reads_what_was_compiled_for_it(experts: Case, converted: Path) -> None:
    """The quantization config and its second form are those of the compiled folder; the rest is the source's."""
    config = json.loads((converted / "config.json").read_text())
    compiled = json.loads((experts.compiled / "sglang/quantization_config.json").read_text())
    legacy = json.loads((experts.compiled / "sglang/hf_quant_config.json").read_text())
    assert config.pop("quantization_config") == compiled
    assert json.loads((converted / "hf_quant_config.json").read_text()) == legacy
    assert config == json.loads((experts.source / "config.json").read_text())


def test_an_fp8_source_leaves_nothing_of_its_own_quantization_behind(tmp_path: Path) -> None:
    """A checkpoint that became BF16 says so."""
    made = case(tmp_path, SMALL["deepseek_v3"], "bf16", fp8=True)
    out = made.convert(tmp_path / "out")
    assert "quantization_config" not in json.loads((out / "config.json").read_text())
    assert not [name for name in load_checkpoint(out) if name.endswith("_scale_inv")]


def test_a_policy_without_a_server_describes_its_tensors_itself(tmp_path: Path) -> None:
    """What the plan knows: each quantizer, by names with ranges."""
    policy = "targets: converter\n@routed_experts: nvfp4\n"
    made = case(tmp_path, SMALL["qwen3_moe"], policy)
    config = json.loads((made.convert(tmp_path / "out") / "config.json").read_text())["quantization_config"]
    assert config["precc_contract"] == made.contract.digest
    assert config["tensors"]["model.layers.{0..3}.mlp.experts.{0..3}.down_proj.weight"]["format"] == "nvfp4"


def test_files_that_are_no_weights_are_copied(experts: Case, tmp_path: Path) -> None:
    """Tokenizer, generation config, code, in folders too; no weights of another framework and nothing hidden."""
    source = tmp_path / "source"
    source.mkdir()
    for path in experts.source.iterdir():
        (source / path.name).symlink_to(path)
    (source / "code").mkdir()
    (source / "code" / "run.sh").write_text("echo\n")
    (source / "code" / "run.sh").chmod(0o755)
    for name in (".cache", "pytorch_model.bin", "pytorch_model.bin.index.json", "hf_quant_config.json"):
        (source / name).write_text("{}")
    out = Case(source, experts.compiled).convert(tmp_path / "out")
    found = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    assert found == {*OTHER_FILES, "code/run.sh", "config.json", "hf_quant_config.json", "model.safetensors"}
    assert (out / "code/run.sh").stat().st_mode & 0o777 == 0o755
    assert not (out / "tokenizer.json").is_symlink()
    assert json.loads((out / "hf_quant_config.json").read_text())["quantization"]


def test_one_file_beside_its_configuration_is_a_source(experts: Case, converted: Path, tmp_path: Path) -> None:
    """`SRC` may be the safetensors file itself."""
    source = tmp_path / "source"
    source.mkdir()
    for path in experts.source.glob("*.json"):
        (source / path.name).write_bytes(path.read_bytes())
    (source / "model.safetensors.index.json").unlink()
    write_shards(source, load_checkpoint(experts.source), 1)
    convert(source / "model.safetensors", tmp_path / "out", experts.compiled / "contract.json", workers=1)
    assert stored_bytes(load_checkpoint(tmp_path / "out")) == stored_bytes(load_checkpoint(converted))


def test_scales_that_are_powers_of_two_keep_the_codes_of_the_source(tmp_path: Path) -> None:
    """FP8 blocks become MXFP8 without a value changing: the scale is repeated for its rows and groups of 32."""
    made = case(tmp_path, SMALL["deepseek_v3"], f"{SERVED}default: mxfp8\n{ABSORBED}", fp8=True, power_of_two=True)
    before, after = load_checkpoint(made.source), load_checkpoint(made.convert(tmp_path / "out"))
    kept = [name for name in after if name.endswith("_scale_inv") and after[name].dtype is torch.uint8]
    assert kept
    for scale in kept:
        name = scale.removesuffix("_scale_inv")
        assert torch.equal(before[name].view(torch.uint8), after[name].view(torch.uint8))
        rows, columns = after[name].shape
        spread = before[scale].repeat_interleave(128, 0)[:rows].repeat_interleave(4, 1)[:, : columns // 32]
        assert torch.equal(torch.exp2(after[scale].float() - 127), spread)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e8m0fnu])
def test_block_scales_may_be_stored_in_any_of_their_dtypes(tmp_path: Path, dtype: torch.dtype) -> None:
    """BF16 and E8M0 scales become the FP32 that is promised, exactly."""
    made = case(tmp_path, SMALL["qwen3"], f"{SERVED}default: fp8_block\n", fp8=True, power_of_two=True)
    weights = load_checkpoint(made.source)
    narrow = {name: value.to(dtype) if name.endswith("_scale_inv") else value for name, value in weights.items()}
    write_shards(made.source, narrow, 2)
    written = load_checkpoint(made.convert(tmp_path / "out"))
    assert stored_bytes(written) == stored_bytes(weights)


def test_a_policy_compiled_for_a_name_converts_a_checkpoint_of_that_shape(tmp_path: Path) -> None:
    """The contract holds all that converting needs; the model may have been a `config.json`."""
    made = case(tmp_path, SMALL["qwen3_moe"], "nvfp4_rl")
    by_config = compile_for(made.source / "config.json", "nvfp4_rl", tmp_path / "by_config")
    one = made.convert(tmp_path / "one")
    other = Case(made.source, by_config).convert(tmp_path / "other")
    assert content(one) == content(other)
