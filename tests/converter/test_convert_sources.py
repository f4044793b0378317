"""Sources in every low precision that the graph reads: what they are dequantized to, and what of them is kept."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from converter.checkpoints import (
    DTYPES,
    Weights,
    content,
    load_checkpoint,
    names_of,
    spelled,
    stored_bytes,
    values,
    write_checkpoint,
    write_shards,
)
from converter.contracts import compiled, decided
from converter.conversions import Case, case, compile_for, expected, plain, stored
from converter.encoding import encode, words_beside
from converter.models import config_of
from graph.stored_forms import quantized
from rollout.support import SMALL

from precc import rules
from precc.cli import main
from precc.graph.forms import ROW, Form
from precc.graph.reading import read_model
from precc_converter import NotConverted, audit, backend

CONFIG = SMALL["qwen3_moe"]

MODELOPT, COMPRESSED = ("weight", "weight_scale"), ("weight_packed", "weight_scale")
FORMS = {
    "fp8 in blocks": Form("fp8", (128, 128)),
    "fp8 in blocks of compressed-tensors": Form("fp8", (128, 128), MODELOPT),
    "fp8 in blocks under `scale`": Form("fp8", (128, 128), ("weight", "scale")),
    "fp8": Form("fp8", None, MODELOPT),
    "fp8 with static inputs": Form("fp8", None, (*MODELOPT, "input_scale")),
    "fp8 channels": Form("fp8", ROW, MODELOPT),
    "mxfp8": Form("mxfp8", (1, 32)),
    "mxfp8 of ModelOpt": Form("mxfp8", (1, 32), MODELOPT),
    "nvfp4": Form("nvfp4", (1, 16)),
    "nvfp4 with static inputs": Form("nvfp4", (1, 16), (*MODELOPT, "weight_scale_2", "input_scale")),
    "nvfp4 of compressed-tensors": Form("nvfp4", (1, 16), (*COMPRESSED, "weight_global_scale", "input_global_scale")),
    "mxfp4": Form("mxfp4", (1, 32), COMPRESSED),
    "mxfp4 under `scale`": Form("mxfp4", (1, 32), ("weight", "scale")),
    "int8 channels": Form("int8", ROW),
    "int8": Form("int8", (1, 64)),
    "int4": Form("int4", (1, 32)),
    "int4 channels": Form("int4", ROW),
}
POLICY = """\
targets: converter
layers[0]: nvfp4
layers[1]: mxfp8
layers[2]: fp8_block scales fp32
@attention in layers[2]: bf16
@attention in layers[3]: weight fp8 per_channel, input fp8 per_token, train bf16
@routed_experts in layers[3]: weight int4 group 32, train bf16
gate_proj in layers[3]: fp8, train bf16
up_proj in layers[3]: fp8, train bf16
"""
KEPT = {
    "fp8 in blocks": r"layers\.2\.mlp",
    "fp8 in blocks of compressed-tensors": r"layers\.2\.mlp",
    "fp8 in blocks under `scale`": r"layers\.2\.mlp",
    "fp8": r"layers\.3\.mlp.*(gate|up)_proj",
    "fp8 with static inputs": r"layers\.3\.mlp.*(gate|up)_proj",
    "fp8 channels": r"layers\.3\.self_attn",
    "mxfp8": r"layers\.1\.",
    "mxfp8 of ModelOpt": r"layers\.1\.",
    "nvfp4": r"layers\.0\.",
    "nvfp4 with static inputs": r"layers\.0\.",
    "nvfp4 of compressed-tensors": r"layers\.0\.",
    "int4": r"layers\.3\.mlp.*down_proj",
}
"""The quantized modules in which a form is what the policy decides."""


def write_stored(folder: Path, form: Form, config: dict[str, Any] = CONFIG) -> Path:
    """A checkpoint whose linear layers are stored in a form."""
    write_checkpoint(folder, config)
    weights: Weights = {}
    for tensor in read_model(str(folder)).tensors:
        for name in names_of(tensor):
            made = values(name, tensor.shape)
            low = form.is_quantized and quantized(tensor)
            weights |= spelled(name, encode(form, made)) if low else {name: made.to(DTYPES[tensor.dtype])}
    write_shards(folder, weights, 2)
    return folder


@pytest.mark.parametrize("form", FORMS)
def test_what_is_decided_already_is_kept_and_the_rest_quantized_from_its_numbers(form: str, tmp_path: Path) -> None:
    """Byte for byte what the quantizers make of the numbers that codes and scales stand for, in FP32."""
    folder = write_stored(tmp_path / "source", FORMS[form])
    made = Case(folder, compile_for(folder, POLICY, tmp_path / "compiled"))
    before, found = load_checkpoint(folder), load_checkpoint(made.convert(tmp_path / "out"))
    wanted, kept = expected(made.contract, folder), set(_kept(made, KEPT.get(form)))
    assert bool(kept) is (form in KEPT)
    assert found.keys() == wanted.keys()
    again = {name for name in wanted if name.rpartition(".")[0] not in kept}
    assert stored_bytes({n: found[n] for n in again}) == stored_bytes({n: wanted[n] for n in again})
    for module in kept:
        codes, after = (_codes(f"{module}.weight", weights) for weights in (before, found))
        assert torch.equal(codes.view(torch.uint8), after.view(torch.uint8))
        assert torch.equal(plain(f"{module}.weight", found), plain(f"{module}.weight", before))


def _kept(made: Case, pattern: str | None) -> Iterator[str]:
    """The modules whose codes have to be the source's."""
    for entry in made.contract.quantized():
        yield from (module for module in entry.tensor.modules() if pattern and re.search(pattern, module))


def _codes(name: str, weights: Weights) -> torch.Tensor:
    words = words_beside(name, weights)
    return words["weight"] if "weight" in words else words["weight_packed"]


# --- what the tools themselves make of it ------------------------------------------------------------

_WEIGHTS = {
    "fp8": ("float-quantized", 8, "float", "tensor", None),
    "fp8 channels": ("float-quantized", 8, "float", "channel", None),
    "mxfp8 of ModelOpt": ("mxfp8-quantized", 8, "float", "group", 32),
    "nvfp4 of compressed-tensors": ("nvfp4-pack-quantized", 4, "float", "tensor_group", 16),
    "mxfp4": ("mxfp4-pack-quantized", 4, "float", "group", 32),
    "int8 channels": ("int-quantized", 8, "int", "channel", None),
    "int4": ("pack-quantized", 4, "int", "group", 32),
    "int4 channels": ("pack-quantized", 4, "int", "channel", None),
}
"""The compressor of compressed-tensors that reads a form, and the facts of its scheme."""


def _decompressed(form: str, words: Weights) -> torch.Tensor:
    compressor, bits, kind, strategy, group = _WEIGHTS[form]
    args = QuantizationArgs(num_bits=bits, type=kind, strategy=strategy, group_size=group)
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    made: torch.Tensor = BaseCompressor.get_value_from_registry(compressor).decompress(words, scheme)["weight"]
    return made.to(torch.bfloat16)


@pytest.mark.parametrize("form", _WEIGHTS)
def test_weights_become_what_compressed_tensors_decompresses_them_to(form: str, tmp_path: Path) -> None:
    """Bit for bit in BF16, and nothing is left packed."""
    folder = write_stored(tmp_path / "source", FORMS[form])
    made = Case(folder, compile_for(folder, "targets: converter\ndefault: bf16\n", tmp_path / "compiled"))
    before, found = load_checkpoint(folder), load_checkpoint(made.convert(tmp_path / "out"))
    assert {tensor.dtype for tensor in found.values()} == {torch.bfloat16}
    low = [name for name in found if len(words_beside(name, before)) > 1]
    assert len(low) > 60
    wanted = {name: _decompressed(form, words_beside(name, before)) for name in low}
    assert stored_bytes({name: found[name] for name in low}) == stored_bytes(wanted)


# --- experts stacked in the graph and stored one by one ----------------------------------------------

VISION = {**config_of("qwen3_vl_moe"), "moe_intermediate_size": 128}


@pytest.mark.parametrize("form", ["fp8 in blocks", "nvfp4", "int4", "bf16"])
@pytest.mark.parametrize("spec", ["nvfp4 per_token", "weight int4 group 32, train bf16", "bf16"])
def test_experts_that_a_quantizer_stored_one_by_one_are_read_as_the_stack_that_they_were(
    form: str, spec: str, tmp_path: Path
) -> None:
    """They become what the same experts become that are stacked: singles where they are quantized, else a stack."""
    folder = write_stored(tmp_path / "source", Form(), VISION)
    weights = load_checkpoint(folder)
    singles = {name: value for name, value in weights.items() if ".mlp.experts." not in name}
    for name in weights.keys() - singles.keys():
        for expert, matrix in enumerate(weights[name]):
            halves = ("gate_proj", "up_proj") if name.endswith("gate_up_proj") else ("down_proj",)
            for part, weight in zip(halves, matrix.t().chunk(len(halves)), strict=True):
                own = f"{name.rpartition('.')[0]}.{expert}.{part}.weight"
                low = (
                    encode(FORMS[form], weight.float().contiguous())
                    if form in FORMS
                    else {"weight": weight.contiguous()}
                )
                singles |= spelled(own, low)
    write_shards(folder, singles, 2)
    made = Case(folder, compile_for(folder, f"targets: converter\n@routed_experts: {spec}\n", tmp_path / "compiled"))
    found = load_checkpoint(made.convert(tmp_path / "out"))
    for entry in made.contract.entries:
        tensor, weight = entry.tensor, entry.decision.weight
        if not tensor.form.apart:
            continue
        parent = ".".join(tensor.path[:-1])
        for expert in range(tensor.stacked):
            names = [f"{parent}.{expert}.{part}.weight" for part in tensor.form.apart]
            numbers = [plain(name, singles) for name in names]
            if not weight.is_quantized:
                joined = torch.cat(numbers).t() if tensor.contraction == 1 else torch.cat(numbers)
                assert torch.equal(found[tensor.name][expert], joined.to(torch.bfloat16))
            elif weight.format == made.contract.find(tensor.name).tensor.form.dtype:
                assert all(torch.equal(plain(name, found), one) for name, one in zip(names, numbers, strict=True))
            else:
                largest = torch.cat(numbers).abs().max()
                shared = largest if weight.format == "nvfp4" else None
                wanted: Weights = {}
                for name, one in zip(names, numbers, strict=True):
                    wanted |= stored(name, one, weight, shared)
                assert stored_bytes({name: found[name] for name in wanted}) == stored_bytes(wanted)


# --- as they are published ---------------------------------------------------------------------------

INTEGERS = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32}
KIMI = {
    **config_of("kimi_k25"),
    "quantization_config": {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": INTEGERS}},
        "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"],
    },
}
"""The experts of Kimi-K2 and K2.5: INT4 alone, with no other checkpoint to start from."""


KIMI_POLICIES = {"nvfp4": "targets: sglang, converter\n@routed_experts: nvfp4 per_token\n"}


@pytest.mark.parametrize("policy, kept", [("int4_w4a16", True), ("nvfp4", False), ("bf16", False)])
def test_the_integers_of_kimi_are_kept_or_become_another_format(policy: str, kept: bool, tmp_path: Path) -> None:
    """All experts alike; the last line of the verb counts them."""
    made = case(tmp_path / "case", KIMI, KIMI_POLICIES.get(policy, policy))
    before, said = load_checkpoint(made.source), io.StringIO()
    with contextlib.redirect_stdout(said):
        words = ["convert", str(made.source), str(tmp_path / "out"), "--contract", str(made.compiled), "--quiet"]
        assert main([*words, "--workers", "1", "--device", "cpu"]) == 0
    found = load_checkpoint(tmp_path / "out")
    packed = [name for name in before if name.endswith("weight_packed")]
    assert len(packed) == 12
    if kept:
        assert stored_bytes(found) == stored_bytes(before)
    else:
        assert stored_bytes(found) == stored_bytes(expected(made.contract, made.source))
    counts = {"int4_w4a16": (12, 0, 0), "nvfp4": (0, 12, 0), "bf16": (0, 0, 12)}[policy]
    assert re.findall(r"\d+", said.getvalue().splitlines()[-1]) == [*map(str, counts)]


# --- one set of bytes, and none of what is wrong -----------------------------------------------------


def test_the_bytes_are_the_same_for_any_number_of_workers_and_after_an_interruption(tmp_path: Path) -> None:
    """Packed integers, dequantized, quantized again and kept."""
    folder = write_stored(tmp_path / "source", FORMS["int4"])
    made = Case(folder, compile_for(folder, POLICY, tmp_path / "compiled"))
    alone = content(made.convert(tmp_path / "alone", max_shard_size=300_000))
    assert audit(tmp_path / "alone", made.compiled, source=folder).findings == ()
    assert content(made.convert(tmp_path / "two", workers=2, max_shard_size=300_000)) == alone
    resumed = tmp_path / "resumed"
    with pytest.raises(KeyboardInterrupt):
        made.convert(resumed, max_shard_size=300_000, started=lambda *_: _interrupted_after(3))
    assert 0 < len(list(resumed.glob("*.safetensors"))) < len([name for name in alone if name.endswith(".safetensors")])
    assert content(made.convert(resumed, max_shard_size=300_000)) == alone


def _interrupted_after(pieces: int) -> Callable[[object], None]:
    left = iter(range(pieces))

    def report(done: object) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt

    return report


_DOWN = "model.layers.3.mlp.experts.1.down_proj"


def _replaced(word: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Weights], None]:
    def apply(weights: Weights) -> None:
        weights[f"{_DOWN}.{word}"] = change(weights[f"{_DOWN}.{word}"]).contiguous()

    return apply


def _dropped(weights: Weights) -> None:
    del weights[f"{_DOWN}.weight_scale"]


def _other_outer(weights: Weights) -> None:
    weights["model.layers.0.mlp.experts.2.up_proj.weight_scale_2"] *= 2


FAULTS: dict[str, tuple[str, Callable[[Weights], None], str]] = {
    "a scale of another shape": (
        "int4",
        _replaced("weight_scale", lambda t: t[:, :-1]),
        r"P601 .*down_proj.weight_scale",
    ),
    "codes that are cut": ("int4", _replaced("weight_packed", lambda t: t[:-8]), r"P601 .*weight_packed` is I32 \[248"),
    "a shape that is not that of the codes": (
        "int4",
        _replaced("weight_shape", lambda t: t.flip(0)),
        r"P601 .*weight_shape` says \[128, 256\], the codes beside it are of \[256, 128\]",
    ),
    "no scale": ("int4", _dropped, r"P603 .*lacks 1 tensors of the contract: .*down_proj.weight_scale`"),
    "kept integers with wider scales": (
        "int4",
        _replaced("weight_scale", lambda t: t.float()),
        r"P601 .*weight_scale` is F32: INT4 is kept with scales in BF16",
    ),
    "gate and up with outer scales of their own": (
        "nvfp4",
        _other_outer,
        r"P601 .*experts\.2\.gate_proj\.weight_scale_2`: gate and up have outer scales of their own",
    ),
    "codes of another dtype": ("nvfp4", _replaced("weight", lambda t: t.view(torch.int8)), r"P601 .*weight` is I8"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_what_is_packed_is_told_before_a_byte_is_written(fault: str, tmp_path: Path) -> None:
    """With its code, the tensor and what is wrong with it; the destination is not there afterwards."""
    form, change, said = FAULTS[fault]
    folder = write_stored(tmp_path / "source", FORMS[form])
    made = Case(folder, compile_for(folder, POLICY, tmp_path / "compiled"))
    weights = load_checkpoint(folder)
    change(weights)
    write_shards(folder, weights, 2)
    with pytest.raises(NotConverted, match=said) as refused:
        made.convert(tmp_path / "out")
    assert all(finding.help for finding in refused.value.findings)
    assert not (tmp_path / "out").exists()


def test_a_scale_that_is_no_number_is_told_with_its_name(tmp_path: Path) -> None:
    """Found when it is read; nothing half-written stays."""
    folder = write_stored(tmp_path / "source", FORMS["int4"])
    made = Case(folder, compile_for(folder, POLICY, tmp_path / "compiled"))
    weights = load_checkpoint(folder)
    weights[f"{_DOWN}.weight_scale"][3, 1] = torch.inf
    write_shards(folder, weights, 2)
    with pytest.raises(NotConverted, match=r"P602 .*down_proj\.weight_scale` holds .*NaN or Inf"):
        made.convert(tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("layout", ["gptq", "awq", "int4 with zero points", "int4 in the order of activations"])
def test_integers_that_stand_for_other_numbers_are_refused_when_the_policy_is_compiled(layout: str) -> None:
    """By the rule that names the form and its words."""
    words = {
        "gptq": ("qweight", "qzeros", "scales", "g_idx"),
        "awq": ("qweight", "qzeros", "scales"),
        "int4 with zero points": (*COMPRESSED, "weight_shape", "weight_zero_point"),
        "int4 in the order of activations": (*COMPRESSED, "weight_shape", "weight_g_idx"),
    }[layout]
    contract = decided(
        compiled("targets: converter\ndefault: bf16\n", "qwen3-8b"),
        lambda e: replace(e, tensor=replace(e.tensor, form=Form("int4", (1, 128), words))) if e.tensor.is_gemm else e,
    )
    (finding,) = [finding for finding in rules.check_backend(backend.rules, contract) if finding.code == "P701"]
    assert f"stored as int4 in 1×128 blocks, as `{words[0]}`" in finding.message
