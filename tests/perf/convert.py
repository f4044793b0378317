"""A checkpoint from end to end: its routed experts into NVFP4, and everything else copied.

The peers are llm-compressor's model-free path, where `PRECC_PEER` names a folder that it is installed in (it needs
another release of compressed-tensors than SGLang does), and ModelOpt's export, where that is installed, on the same
files and cores. ModelOpt loads the model and runs one short batch through it, as its export needs. Every wall time is
that of a process from its start; page caches are warm, after a first run of each.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.table import Table

from tests.perf.clock import Cost, middle, run

PRECC = [sys.executable, "-m", "precc"]
PEER = os.environ.get("PRECC_PEER", "")

CONFIG: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "torch_dtype": "bfloat16",
    "vocab_size": 32_768,
    "hidden_size": 2048,
    "num_hidden_layers": 2,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_experts": 64,
    "num_experts_per_tok": 8,
    "tie_word_embeddings": False,
}

_LLM_COMPRESSOR = """
import sys
from llmcompressor import model_free_ptq
ignore = ["lm_head", "re:.*embed_tokens$", "re:.*self_attn.*", "re:.*mlp.gate$"]
model_free_ptq(sys.argv[1], sys.argv[2], scheme="NVFP4A16", ignore=ignore, max_workers=int(sys.argv[3]), device="cpu")
"""
_MODELOPT = """
import sys
sys.modules["transformer_engine"] = None
import torch, modelopt.torch.quantization as mtq
from modelopt.torch.export import export_hf_checkpoint
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.bfloat16)
mtq.quantize(model, mtq.NVFP4_EXPERTS_ONLY_CFG, forward_loop=lambda model: model(torch.arange(512).reshape(1, 512)))
export_hf_checkpoint(model, export_dir=sys.argv[2])
"""
_PEERS = {
    "llm-compressor, model-free": _LLM_COMPRESSOR if PEER else "",
    "ModelOpt, export": _MODELOPT if find_spec("modelopt") else "",
}


def measure(times: int, folder: Path) -> Table:
    """The wall time of each, its CPU time, and where precc's goes; `folder` takes some five gigabytes."""
    source = folder / "checkpoint"
    size = write(source)
    policy = folder / "experts.prec"
    policy.write_text("targets: sglang, converter\n@routed_experts: nvfp4 per_token\n")
    run([*PRECC, "compile", str(policy), "--model", str(source), "-o", str(folder / "compiled")])
    table = Table(title=f"Routed experts of a checkpoint of {size / 1e9:.1f} GB into NVFP4, {os.cpu_count()} workers")
    for column in ("", "wall s", "CPU s", "GB/s", "times", "reading", "quantizing", "writing"):
        table.add_column(column, justify="left" if not column else "right")
    ours = _costs(lambda out: run([*_ours(source, folder), str(out)]), folder / "ours", times)
    table.add_row("precc convert", *_figures(ours, size), "1", *_shares(source, folder))
    for name, program in _PEERS.items():
        if program:
            theirs = _costs(partial(_peer, program, source), folder / "theirs", times)
            table.add_row(name, *_figures(theirs, size), f"{theirs.wall / ours.wall:.1f}", "", "", "")
    return table


def write(folder: Path) -> int:
    """The checkpoint, a gigabyte and a half of random BF16 in two shards; the result is its size."""
    import torch
    from safetensors.torch import save_file

    from precc.graph import read_model

    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    names = {}
    for tensor in read_model(str(folder / "config.json")).tensors:
        names |= dict.fromkeys(tensor.names(), tensor.shape)
    size, files = 0, {}
    for at in range(2):
        part = {name: torch.randn(shape, dtype=torch.bfloat16) * 0.02 for name, shape in list(names.items())[at::2]}
        file = f"model-{at + 1:05}-of-00002.safetensors"
        save_file(part, folder / file, metadata={"format": "pt"})
        files |= dict.fromkeys(part, file)
        size += sum(weight.nbytes for weight in part.values())
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))
    return size


def _ours(source: Path, folder: Path) -> list[str]:
    options = ["--contract", str(folder / "compiled"), "--device", "cpu", "--output-format", "json"]
    return [*PRECC, "convert", *options, str(source)]


def _peer(program: str, source: Path, out: Path) -> Cost:
    command = [sys.executable, "-W", "ignore", "-c", program, str(source), str(out), str(os.cpu_count())]
    return run(["env", f"PYTHONPATH={PEER}" if program == _LLM_COMPRESSOR else "PYTHONPATH=", *command])


def _costs(convert: Callable[[Path], Cost], out: Path, times: int) -> Cost:
    """The median of so many runs, after a first one."""
    costs = []
    for _ in range(times + 1):
        shutil.rmtree(out, ignore_errors=True)
        costs.append(convert(out))
    return middle(costs[1:])


def _shares(source: Path, folder: Path) -> list[str]:
    """How the workers' time divides over the steps, in one more run."""
    out = folder / "ours"
    shutil.rmtree(out)
    done = subprocess.run([*_ours(source, folder), str(out)], capture_output=True, text=True, check=True)
    seconds = json.loads(done.stdout)["seconds"]
    return [f"{100 * seconds[step] / sum(seconds.values()):.0f} %" for step in ("reading", "quantizing", "writing")]


def _figures(cost: Cost, size: int) -> tuple[str, str, str]:
    return f"{cost.wall:.1f}", f"{cost.cpu:.1f}", f"{size / cost.wall / 1e9:.2f}"
