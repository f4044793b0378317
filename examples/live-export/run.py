"""Two steps: a trainer's weights into SGLang's model, and the evidence that both sides hold the same.

python run.py OUT        where `precc compile policy.prec --model config.json -o OUT` wrote
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from cpu_engine import CpuEngine
from trainer import Trainer
from update import update_weights

from precc_converter import LiveExporter, fingerprint

HERE = Path(__file__).parent


def served(out: Path) -> Path:
    """A folder that SGLang reads the model's configuration from: that of a converted checkpoint, without weights."""
    folder = out / "served"
    folder.mkdir(exist_ok=True)
    config = json.loads((HERE / "config.json").read_text())
    config["quantization_config"] = json.loads((out / "sglang/quantization_config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config))
    for name in ("server.yaml", "hf_quant_config.json"):
        shutil.copy(out / "sglang" / name, folder)
    return folder


def main(out: Path) -> None:
    """Train, update, compare; twice."""
    exporter = LiveExporter(out)
    engine = CpuEngine(served(out))
    trainer = Trainer(exporter.contract.model)
    for step in (1, 2):
        trainer.step()
        session = update_weights(engine, exporter, trainer.buckets(), step=step, evidence=out / "evidence.jsonl")
        same = fingerprint(engine.received) == session.fingerprint
        print(f"step {step}: {session.tensors} tensors, {session.bytes:,} bytes, received as sent: {same}")
        print(f"  weight version {session.weight_version}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
