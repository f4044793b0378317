"""What stands for a trainer here: random weights under Megatron-Core's names, changed a little at every step."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from precc.graph import ModelGraph
from precc_converter.trainer import TrainerNames


class Trainer:
    """The parameters of a model as Megatron-Core names them, shards gathered: BF16, and a router's bias FP32."""

    def __init__(self, model: ModelGraph, seed: int = 0) -> None:
        names = TrainerNames(model)
        self._random = torch.Generator().manual_seed(seed)
        shapes = {names.written(place): place.parameter.shape for place in names.places()}
        self.parameters = {name: self._draw(shape).to(_dtype(name)) for name, shape in shapes.items()}

    def step(self) -> None:
        """A step that changes every weight."""
        for name, weight in self.parameters.items():
            self.parameters[name] = weight + self._draw(weight.shape).to(weight.dtype)

    def buckets(self, size: int = 8) -> Iterator[dict[str, Tensor]]:
        """The parameters, some at a time, in whatever order they come."""
        names = list(self.parameters)
        order = torch.randperm(len(names), generator=self._random).tolist()
        for start in range(0, len(order), size):
            yield {names[at]: self.parameters[names[at]] for at in order[start : start + size]}

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        return torch.randn(shape, generator=self._random) * 0.02


def _dtype(name: str) -> torch.dtype:
    return torch.float32 if name.endswith("expert_bias") else torch.bfloat16
