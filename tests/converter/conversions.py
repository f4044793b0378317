"""What the tests of `convert` start from: a checkpoint, a policy compiled for it, and what has to come out."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from converter.checkpoints import Weights, load_checkpoint, names_of, write_checkpoint
from converter.encoding import decode, words_beside

from precc.cli import main
from precc.contract import Contract, Entry, load_contract
from precc.formats import Quantization
from precc.quant import quantize
from precc_converter import convert

EXPERTS_IN_NVFP4 = "@routed_experts: nvfp4 per_token\nlayers[-1:]: bf16\n"

PARTS = {
    "mxfp8": {"codes": "weight", "block_scale": "weight_scale_inv"},
    "fp8_block": {"codes": "weight", "block_scale": "weight_scale_inv"},
    "fp8": {"codes": "weight", "outer_scale": "weight_scale"},
    "nvfp4": {"codes": "weight", "block_scale": "weight_scale", "outer_scale": "weight_scale_2"},
    "int4": {"codes": "weight_packed", "block_scale": "weight_scale", "shape": "weight_shape"},
}
"""The names that SGLang's loader asks with, by format."""

UNQUANTIZED = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


@dataclass(frozen=True)
class Case:
    """A checkpoint, and the folder that a policy was compiled into for it."""

    source: Path
    compiled: Path

    @property
    def contract(self) -> Contract:
        return load_contract(self.compiled)

    def convert(self, destination: Path, **options: Any) -> Path:
        """The destination, after a conversion in this process unless told otherwise."""
        convert(self.source, destination, self.compiled, **{"workers": 1, "device": "cpu", **options})
        return destination


def case(folder: Path, config: Mapping[str, Any], policy: str = EXPERTS_IN_NVFP4, **options: Any) -> Case:
    """A checkpoint of a model in `folder`, and a policy text, or a ready policy by its name, compiled for it."""
    source = write_checkpoint(folder / "source", config, **options)
    return Case(source, compile_for(source, policy, folder / "compiled"))


def compile_for(model: Path, policy: str, output: Path) -> Path:
    """The folder that `precc compile` wrote."""
    if ":" in policy:
        path = output.with_suffix(".prec")
        path.write_text(policy)
        policy = str(path)
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        status = main(["compile", policy, "--model", str(model), "-o", str(output)])
    assert status == 0, said.getvalue()
    return output


def expected(contract: Contract, source: Path) -> Weights:
    """What a conversion has to write, tensor by tensor and in the plainest way."""
    weights = load_checkpoint(source)
    largest = _shared(contract, weights)
    made: Weights = {}
    for entry, group, name in named(contract):
        weight = entry.decision.weight
        if not weight.is_quantized:
            made[name] = plain(name, weights).to(UNQUANTIZED[weight.format])
        else:
            shared = largest[group] if group and weight.format == "nvfp4" else None
            made |= stored(name, plain(name, weights), weight, shared)
    return made


def named(contract: Contract) -> Iterator[tuple[Entry, str, str]]:
    """Every stored tensor of a contract, with the group whose outer scale it shares."""
    for entry in contract.entries:
        for name in names_of(entry.tensor):
            group = name.rpartition(".")[0].rpartition(".")[0] if entry.tensor.scale_group else ""
            yield entry, group, name


def plain(name: str, weights: Weights) -> torch.Tensor:
    """A source tensor as numbers: as it is stored in 16 or 32 bits, else codes times their scales in FP32."""
    return decode(words_beside(name, weights))


def stored(name: str, weight: torch.Tensor, spec: Quantization, amax: torch.Tensor | None = None) -> Weights:
    """A quantized weight under its stored names."""
    parts = quantize(weight, spec, amax=amax)
    return {f"{name.rpartition('.')[0]}.{PARTS[spec.format][part]}": tensor for part, tensor in parts.items()}


def _shared(contract: Contract, weights: Weights) -> dict[str, torch.Tensor]:
    largest: dict[str, torch.Tensor] = {}
    for entry, group, name in named(contract):
        if group and entry.decision.weight.format == "nvfp4":
            amax = plain(name, weights).float().abs().max()
            largest[group] = torch.maximum(amax, largest.get(group, amax))
    return largest
