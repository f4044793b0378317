"""What the tests of `precc_te.fake_quantize` ask of a worker with Megatron: real models, filled with numbers."""

from __future__ import annotations

import contextlib
import os
import types
from collections.abc import Mapping
from typing import Any

from te.upstream_source import method_of

import precc_te
from precc.backend import NotAttested
from precc.contract import Contract
from precc.formats import Quantization
from precc_te.rounding import weights_of
from precc_te.upstream import models
from precc_te.upstream.trial import build
from precc_te.upstream.wire import Job
from precc_te.walk import linears

Chunks = list[Any]

SIZES = {"moe_ffn_hidden_size": "moe_intermediate_size", "q_lora_rank": "q_lora_rank", "kv_lora_rank": "kv_lora_rank"}
"""Megatron's fields that are the contract's, where the judge's models are as small as can be."""


def filled(job: Job, contract: Contract, changes: Mapping[str, Any], dtype: str = "bfloat16") -> Chunks:
    """The last rank's model, with the contract's sizes of experts and random weights."""
    import torch

    os.chdir(job.folder)
    models.without_cuda()
    config = contract.model.config
    sizes = {field: config[said] for field, said in SIZES.items() if config.get(said)}
    (layout,) = job.layouts
    chunks = build(job, layout, layout.pp - 1, {**sizes, **changes}, config["hidden_size"])
    torch.manual_seed(0)
    for linear in linears(chunks):
        for name in weights_of(linear.module):
            numbers = 0.02 * torch.randn(getattr(linear.module, name).shape)
            setattr(linear.module, name, torch.nn.Parameter(numbers.to(getattr(torch, dtype))))
    return chunks


def read(module: Any, name: str) -> Any:
    """A weight as the forward of TransformerEngine's layer takes it."""
    return getattr(module, name)


def forward_and_export(job: Job, contract: Contract, changes: Mapping[str, Any], dtype: str) -> dict[str, Any]:
    """For each rounded weight: whether its bits are those that the live export's stored parts dequantize to."""
    import torch

    chunks = filled(job, contract, changes, dtype)
    before = [(name, id(parameter)) for name, parameter in chunks[0].named_parameters()]
    state = list(chunks[0].state_dict(keep_vars=True))
    count = precc_te.fake_quantize(chunks, contract)
    exported = _exported(contract, chunks[0])
    agree = {}
    for linear in linears(chunks):
        for number, name in enumerate(weights_of(linear.module)):
            if "experts" in linear.path:
                expert = linear.path.partition("local_experts.")[2].partition(".")[0] or str(number)
                served = _served(exported, contract, linear.path, expert)
                got = read(linear.module, name)
                agree[f"{linear.path}.{name}"] = (
                    str(got.dtype).removeprefix("torch.") == dtype
                    and torch.equal(got.bfloat16().view(torch.int16), served.view(torch.int16))
                    and torch.equal(got.float(), served.float())
                    and not torch.equal(got, linear.module._parameters[name])
                )
    kept = before == [(name, id(parameter)) for name, parameter in chunks[0].named_parameters()]
    return {"count": count, "agree": agree, "kept": kept and state == list(chunks[0].state_dict(keep_vars=True))}


def _exported(contract: Contract, model: Any) -> dict[str, Any]:
    """What the live export yields of the experts, under the names that the trained model has for them."""
    import torch

    from precc_converter import LiveExporter
    from precc_converter.live import MissingTensors

    experts = {name: each.to(torch.bfloat16) for name, each in model.named_parameters() if ".experts." in name}
    found: dict[str, Any] = {}
    with contextlib.suppress(MissingTensors), LiveExporter(contract).session(step=1) as session:
        found.update(session.add(experts))
    return found


def _served(exported: Mapping[str, Any], contract: Contract, path: str, expert: str) -> Any:
    """The BF16 weight that the stored parts of one expert's projections stand for; gate over up."""
    import torch

    from precc.quant import dequantize

    layer = path.split(".")[2]
    parts = ("gate_proj", "up_proj") if path.endswith("fc1") else ("down_proj",)
    made = []
    for part in parts:
        name = f"model.layers.{layer}.mlp.experts.{expert}.{part}.weight"
        entry = contract.find(name)
        stored = {"codes": exported[f"{name}_packed"], "block_scale": exported[f"{name}_scale"]}
        made.append(dequantize(stored, entry.decision.weight, dtype=torch.bfloat16))
    return torch.cat(made)


def upstream_reads(job: Job, contract: Contract) -> dict[str, bool]:
    """Whether the installed TransformerEngine's own method takes the rounded weights, for each layer of one block."""
    import torch

    chunks = filled(job, contract, {})
    precc_te.fake_quantize(chunks, contract)
    found = {}
    for linear in linears(chunks):
        if linear.path.startswith("decoder.layers.3.mlp.experts."):
            place = ("GroupedLinear", "grouped_linear") if job.layouts[0].grouped else ("Linear", "linear")
            linear.module.fp8 = False
            linear.module.weight_names = ["weight"]
            never = type("Never", (), {})
            known = {"torch": torch, "QuantizedTensor": never, "QuantizedTensorStorage": never}
            taken = method_of(place[0], f"module/{place[1]}.py", "_get_weight_tensors", known)(linear.module)
            names = weights_of(linear.module)
            same = [torch.equal(one, read(linear.module, name)) for one, name in zip(taken, names, strict=True)]
            plain = [one is linear.module._parameters[name] for one, name in zip(taken, names, strict=True)]
            found[linear.path] = all(same) and not any(plain)
    return found


def gradients(job: Job, contract: Contract) -> dict[str, Any]:
    """Whether a gradient reaches the weight in full, an optimizer moves it, and checkpoints carry it."""
    import torch

    chunks = filled(job, contract, {})
    fused = [linear.module for linear in linears(chunks)]
    for module in fused:
        module.fuse_wgrad_accumulation = True
    precc_te.fake_quantize(chunks, contract)
    module = next(linear.module for linear in linears(chunks) if "experts" in linear.path)
    weight, given = module._parameters["weight0"], torch.randn_like(module._parameters["weight0"])
    kept, rounded = weight.detach().clone(), read(module, "weight0").detach()
    (read(module, "weight0") * given).sum().backward()
    arrived = torch.equal(weight.grad, given)
    torch.optim.SGD([weight], lr=0.1).step()
    moved = not torch.equal(weight, kept) and not torch.equal(read(module, "weight0"), rounded)
    module.load_state_dict({"weight0": kept}, strict=False)
    return {
        "arrived": arrived,
        "moved": moved,
        "loaded": torch.equal(weight, kept) and torch.equal(read(module, "weight0"), rounded),
        "not fused": [not each.fuse_wgrad_accumulation for each in fused].count(True),
    }


def register(chunks: Chunks, path: str, name: str, spec: Quantization, **options: Any) -> None:
    """Torch's own parametrization of one weight; a `stored` dtype by its name."""
    import torch
    from torch.nn.utils import parametrize

    from precc.quant import FakeQuantized

    module = chunks[0].get_submodule(path)
    if "stored" in options:
        options["stored"] = getattr(torch, options["stored"])
    parametrize.register_parametrization(module, name, FakeQuantized(spec, **options))


def attested(
    job: Job,
    contract: Contract,
    rounds: Contract | None = None,
    more: tuple[tuple[str, str, Quantization, Mapping[str, Any]], ...] = (),
    wrapped: bool = False,
) -> list[str]:
    """What `attest` finds in a model that was made to round by one contract (none: not at all), and by hand."""
    chunks = filled(job, contract, {})
    model: Any = [types.SimpleNamespace(module=chunk) for chunk in chunks] if wrapped else chunks
    if rounds is not None:
        precc_te.fake_quantize(model, rounds)
    for path, name, spec, options in more:
        register(chunks, path, name, spec, **options)
    return _differences(model, contract)


def refused(
    job: Job, contract: Contract, changes: Mapping[str, Any], delayed: bool = False, twice: bool = False
) -> tuple[str, int]:
    """Why a model is not made to round, and how many layers were all the same."""
    from precc.quant import roundings

    chunks = filled(job, contract, changes)
    for linear in linears(chunks):
        linear.module.config.delay_wgrad_compute = delayed
    if twice:
        precc_te.fake_quantize(chunks, contract)
    try:
        precc_te.fake_quantize(chunks, contract)
    except ValueError as problem:
        return str(problem), sum(bool(roundings(module)) for module in chunks[0].modules())
    return "", -1


def page(job: Job, contract: Contract, text: str, folder: str) -> tuple[list[str], list[str]]:
    """What `attest` says of a model before and after the code of a page, which runs where the contract was compiled."""
    chunks = filled(job, contract, {})
    os.chdir(folder)
    before = _differences(chunks, contract)
    space: dict[str, Any] = {}
    exec(compile(text, "page.py", "exec"), space)
    space["prepare"](chunks)
    return before, _differences(chunks, contract)


def _differences(model: Any, contract: Contract) -> list[str]:
    try:
        precc_te.attest(model, contract)
    except NotAttested as refusal:
        return [f"{finding.code}: {finding.message}" for finding in refusal.attestation.findings]
    return []
