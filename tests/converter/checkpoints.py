"""Small checkpoints with weights: real safetensors files of a model that is described by its `config.json`.

A tensor's values follow from its name and the seed alone, so two checkpoints with other shards hold the same weights.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import torch
from converter.encoding import encode
from safetensors.torch import load_file, save_file

from precc.graph import ModelGraph, read_model
from precc.graph.layouts import taken_apart
from precc.graph.model import Tensor

Weights = dict[str, torch.Tensor]

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
SPREAD = 0.02
"""The standard deviation of a weight; one element in 512 is an outlier sixteen times as large."""

OTHER_FILES = {
    "generation_config.json": '{"do_sample": true}\n',
    "tokenizer.json": '{"version": "1.0"}\n',
    "tokenizer_config.json": '{"model_max_length": 128}\n',
    "modeling_custom.py": "# code of the model\n",
}


def write_checkpoint(
    folder: Path,
    config: Mapping[str, Any],
    *,
    dtype: str | None = None,
    fp8: bool = False,
    power_of_two: bool = False,
    shards: int = 2,
    seed: int = 0,
) -> Path:
    """A checkpoint folder of a model; `folder` is made.

    `dtype` (`bfloat16`, `float16`, `float32`) is what weights are stored in, or else that of `config`; `fp8` stores
    linear layers in FP8 with 128×128 blocks, as DeepSeek does, their scales powers of two if so declared.
    The tables of integers beside DeepSeek-V4's first routers are in no graph, and so not in the checkpoint either: the
    converter refuses that family (P701).
    """
    folder.mkdir(parents=True)
    shown = dict(config)
    if dtype:
        shown["torch_dtype"] = dtype
    if fp8:
        declared = {"scale_fmt": "ue8m0"} if power_of_two else {}
        shown["quantization_config"] = {
            "quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128], **declared
        }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(shown, indent=1))
    for name, text in OTHER_FILES.items():
        (folder / name).write_text(text)
    write_shards(folder, weights_of(read_model(str(folder / "config.json")), seed, power_of_two), shards)
    return folder


def write_shards(folder: Path, weights: Weights, shards: int) -> None:
    """The weights dealt out over so many files, neighbours in different ones, with an index if there are several."""
    names = list(weights)
    index: dict[str, str] = {}
    for at in range(shards):
        file = "model.safetensors" if shards == 1 else f"model-{at + 1:05}-of-{shards:05}.safetensors"
        part = {name: weights[name] for name in names[at::shards]}
        save_file(part, folder / file, metadata={"format": "pt"})
        index |= dict.fromkeys(part, file)
    if shards > 1:
        shown = {"metadata": {}, "weight_map": index}
        (folder / "model.safetensors.index.json").write_text(json.dumps(shown))


def weights_of(model: ModelGraph, seed: int = 0, power_of_two: bool = False) -> Weights:
    """Every stored tensor of a graph, in its stored dtype."""
    weights: Weights = {}
    for tensor in model.tensors:
        for name in names_of(tensor):
            weights |= _stored(name, tensor, seed, power_of_two)
    return weights


def names_of(tensor: Tensor) -> Iterator[str]:
    """The stored names of a tensor, each expert's for a range of them."""
    end = f".{tensor.parameter}" if tensor.parameter else ""
    return (module + end for module in tensor.modules())


def values(name: str, shape: Sequence[int], seed: int = 0) -> torch.Tensor:
    """The FP32 values of a tensor: normal, with a few outliers."""
    generator = torch.Generator().manual_seed(crc32(name.encode()) ^ seed)
    made = torch.randn(tuple(shape), generator=generator) * SPREAD
    made.view(-1)[::512] *= 16
    return made


def _stored(name: str, tensor: Tensor, seed: int, power_of_two: bool) -> Weights:
    form = tensor.form
    if form.apart:
        return _one_by_one(name, tensor, seed, power_of_two)
    if form.dtype == "mxfp4" and not tensor.parameter:
        return _in_mxfp4(name, tensor, seed)
    made = values(name, tensor.shape, seed)
    if not form.is_quantized:
        return {name: made.to(DTYPES[tensor.dtype])}
    return spelled(name, encode(form, made, power_of_two))


def spelled(name: str, words: Mapping[str, torch.Tensor]) -> Weights:
    """What is stored of a weight, by the names of a checkpoint."""
    module, _, own = name.rpartition(".")
    return {f"{module}.{named(own, word)}": tensor for word, tensor in words.items()}


def named(own: str, word: str) -> str:
    """The last component of a name: a bare parameter's own takes the place of `weight`."""
    return word if own == "weight" else own + word.removeprefix("weight")


def _one_by_one(name: str, stack: Tensor, seed: int, power_of_two: bool) -> Weights:
    """The experts of a stack, each by itself."""
    made: Weights = {}
    form, parent = stack.form._replace(apart=()), name.rpartition(".")[0]
    for part in stack.form.apart:
        shape = taken_apart(stack.form.apart, stack.shape, stack.contraction)
        for expert in range(stack.shape[0]):
            own = f"{parent}.{expert}.{part}.weight"
            weight = values(own, shape, seed)
            made |= spelled(own, encode(form, weight, power_of_two)) if form.is_quantized else {own: weight.bfloat16()}
    return made


def _in_mxfp4(name: str, tensor: Tensor, seed: int) -> Weights:
    """Codes and scales as gpt-oss stores them, all codes and a few scales about one."""
    generator = torch.Generator().manual_seed(crc32(name.encode()) ^ seed)
    blocks, scales = tensor.stored_shapes()
    return {
        f"{name}_blocks": torch.randint(0, 256, blocks, generator=generator, dtype=torch.uint8),
        f"{name}_scales": torch.randint(118, 124, scales, generator=generator, dtype=torch.uint8),
    }


def load_checkpoint(folder: Path) -> Weights:
    """Every tensor of a checkpoint folder, read by the safetensors library."""
    weights: Weights = {}
    for file in sorted(folder.glob("*.safetensors")):
        weights |= load_file(file)
    return weights


def content(folder: Path, names: Iterable[str] = ()) -> dict[str, bytes]:
    """The bytes of a folder's files by their paths."""
    paths = names or (str(path.relative_to(folder)) for path in sorted(folder.rglob("*")) if path.is_file())
    return {name: (folder / name).read_bytes() for name in paths}


def stored_bytes(weights: Weights) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Tensors as what can be compared: dtype, shape and bytes."""
    return {
        name: (str(tensor.dtype), tuple(tensor.shape), tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
        for name, tensor in weights.items()
    }
