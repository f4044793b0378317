"""The live export's arguments; its layer counts are the trainer's, which the same process reads."""

from __future__ import annotations

from collections.abc import Iterator

from precc_miles.stages import Run

MODE = "--megatron-to-hf-mode"
RAW = "raw"
"""The mode that is modelled. In `bridge` mode the model's provider drops FP4, layer counts and recipes
(`model_provider.py:74`), gate and up reach the NVFP4 quantizer one by one, and latent attention stops the export."""

NAMES = "--extra-high-precision-layers-megatron"
CHECKPOINT_NAMES = "--extra-high-precision-layers-hf"


def export_lines(run: Run) -> Iterator[str]:
    """The mode, and parts of names in both languages: the run reads Megatron's, and records the checkpoint's."""
    yield f"{MODE} {RAW}"
    if run.export is not None and run.export.exceptions:
        yield f"{NAMES} {' '.join(run.export.exceptions)}"
    if run.conversion is not None and run.conversion.exceptions:
        yield f"{CHECKPOINT_NAMES} {' '.join(run.conversion.exceptions)}"
