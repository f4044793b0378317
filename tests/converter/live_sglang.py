"""Two steps of live export into SGLang's real model, then the same weights through files, as one JSON object.

Run as a program: CONFIG POLICY FOLDER, and `batches` as the example hands tensors over, or `one by one` as it must
not. The parameters of the model that was updated live are compared with those of a second one, which SGLang's own
loader filled from what `convert` wrote.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from converter.conversions import compile_for
from safetensors.torch import save_file

from precc_converter import LiveExporter, convert
from precc_converter.trainer import TrainerNames
from precc_converter.trainer.values import to_huggingface

EXAMPLE = Path(__file__).parents[2] / "examples" / "live-export"
POISON = 0x5A


def stored(model: Any) -> dict[str, torch.Tensor]:
    """The parameters that a checkpoint fills."""
    from precc_sglang.upstream.worker import UNSTORED

    ends = (*UNSTORED, "input_scale")
    return {name: value.data for name, value in model.named_parameters() if value.numel() and not name.endswith(ends)}


def octets(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor, in place."""
    return tensor.reshape(-1).view(torch.uint8)


def poison(model: Any) -> None:
    """This fills what a checkpoint fills with a byte that a long run of would not be there by chance."""
    for tensor in stored(model).values():
        octets(tensor).fill_(POISON)


def unwritten(model: Any) -> list[str]:
    """The parameters that are still poison, at least a row of them."""
    return [name for name, tensor in stored(model).items() if (octets(tensor) == POISON).float().mean() > 0.1]


def tensor_by_tensor(engine: Any, exporter: LiveExporter, trainer: Any, log: Path) -> None:
    """A careless update: every tensor in a call of its own."""
    with exporter.session(step=1, evidence=log) as session:
        engine.begin_weight_update()
        for bucket in trainer.buckets():
            for pair in session.add(bucket):
                engine.update_weights_from_tensor([pair])
        engine.end_weight_update()


def from_files(folder: Path, compiled: Path, exporter: LiveExporter, trainer: Any) -> Path:
    """What `convert` writes for the trainer's weights, with what SGLang is started with."""
    source = folder / "source"
    source.mkdir()
    names = TrainerNames(exporter.contract.model)
    pairs = (pair for name, weight in trainer.parameters.items() for pair in to_huggingface(names.place(name), weight))
    save_file({name: tensor.contiguous().clone() for name, tensor in pairs}, source / "model.safetensors")
    (source / "config.json").write_bytes((folder / "config.json").read_bytes())
    convert(source, folder / "converted", compiled, workers=1, device="cpu")
    (folder / "converted/server.yaml").write_bytes((compiled / "sglang/server.yaml").read_bytes())
    return folder / "converted"


def reference(folder: Path) -> Iterator[Any]:
    """SGLang's model of a checkpoint folder, filled by its own loader."""
    from sglang.srt.configs.load_config import LoadConfig
    from sglang.srt.model_loader import loader

    from precc_sglang.upstream import frontdoor
    from precc_sglang.upstream.releases import boot

    with boot().gpu(100):
        made = frontdoor.make(frontdoor.server(str(folder)), "cpu")
        poison(made.model)
        weights = loader.DefaultModelLoader(LoadConfig())._get_all_weights(made.settings, made.model)
        with torch.no_grad():
            loader.DefaultModelLoader.load_weights_only(made.model, weights, torch.device("cpu"))
        yield made.model


def main(config: str, policy: str, where: str, manner: str) -> dict[str, Any]:
    """The answer, as plain values."""
    sys.path.insert(0, str(EXAMPLE))
    import run
    from cpu_engine import CpuEngine
    from trainer import Trainer
    from update import update_weights

    folder = Path(where)
    (folder / "config.json").write_text(config)
    run.HERE = folder
    compiled = compile_for(folder / "config.json", policy, folder / "compiled")
    exporter = LiveExporter(compiled)
    engine, trainer = CpuEngine(run.served(compiled)), Trainer(exporter.contract.model)
    poison(engine.model)
    log = folder / "evidence.jsonl"
    for step in (1, 2):
        trainer.step()
        if manner == "batches":
            update_weights(engine, exporter, trainer.buckets(1), step=step, evidence=log, max_bytes=1)
        else:
            tensor_by_tensor(engine, exporter, trainer, log)
    live = stored(engine.model)
    (loaded,) = (stored(model) for model in reference(from_files(folder, compiled, exporter, trainer)))
    return {
        "parameters": len(live),
        "unwritten": unwritten(engine.model),
        "different": [name for name in live if not torch.equal(octets(live[name]), octets(loaded[name]))],
        "unlike": sorted(live.keys() ^ loaded.keys()),
        "lines": len(log.read_text().splitlines()),
    }


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    print(json.dumps(main(*sys.argv[1:])), file=answers)
