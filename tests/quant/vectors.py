"""The golden files: what upstream's own arithmetic stored for 16 to 18 kinds of data.

`inputs.safetensors` holds the weights; the metadata of each other file says which of them a category was made from.
Where only the first rows of a weight are kept, `amax` is that of all of it. `te` and `flashinfer` in MXFP8 and NVFP4
came from an H200, through TransformerEngine's and FlashInfer 0.7.4's device functions; the others from their
functions on a CPU. FlashInfer's are there only where they differ from TransformerEngine's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor

FOLDER = Path(__file__).parent / "golden"


@dataclass(frozen=True)
class Vector:
    """One category: a BF16 weight and what was stored for it."""

    category: str
    weight: Tensor
    data: Tensor
    scale: Tensor
    outer: Tensor | None
    amax: Tensor | None
    flashinfer: dict[str, Tensor]

    @property
    def is_finite(self) -> bool:
        return bool(self.weight.isfinite().all())


@cache
def vectors(name: str) -> tuple[Vector, ...]:
    """All categories of one file."""
    stored = load_file(FOLDER / f"{name}.safetensors")
    with safe_open(FOLDER / f"{name}.safetensors", "pt") as file:
        sources = file.metadata()
    return tuple(_vector(category, _inputs()[source], stored) for category, source in sorted(sources.items()))


@cache
def _inputs() -> dict[str, Tensor]:
    return load_file(FOLDER / "inputs.safetensors")


def _vector(category: str, whole: Tensor, stored: dict[str, Tensor]) -> Vector:
    own = {key.removeprefix(f"{category}."): value for key, value in stored.items() if key.startswith(f"{category}.")}
    data = own["te.data"] if "te.data" in own else own["data"]
    return Vector(
        category=category,
        weight=whole[: data.shape[0]],
        data=data,
        scale=own["te.scale"] if "te.scale" in own else own["scale"],
        outer=own.get("outer"),
        amax=own["amax"].reshape(()) if "amax" in own else None,
        flashinfer={key.split(".")[-1]: value for key, value in own.items() if key.startswith("flashinfer")},
    )
