"""What quantization libraries themselves answer, asked in the process that has them."""

from __future__ import annotations

from collections.abc import Sequence


def deciding_target(name: str, targets: Sequence[str]) -> str | None:
    """The target whose scheme compressed-tensors gives a linear layer."""
    import torch
    from compressed_tensors.utils.match import match_targets

    linear = torch.nn.Linear(1, 1, device="meta")
    return next(iter(match_targets(name, linear, list(targets))), None)


def converted(name: str, entries: Sequence[str]) -> bool:
    """Whether `transformers` converts a linear layer beside a list of what not to convert."""
    from transformers.quantizers.quantizers_utils import should_convert_module

    return bool(should_convert_module(name, list(entries)))
