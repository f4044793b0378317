"""A rounding of parameters that stay where they are: the forward reads them rounded, everything else as they are.

`torch.nn.utils.parametrize` moves a parameter under another name, by which no trainer's checkpoint and no exporter
knows it. Here names, shards, hooks and the optimizer's state are those of before: only `module.NAME`, which is how a
layer's forward takes its weight, is another tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial

from torch import Tensor, nn

from precc.quant.fake import FakeQuantized

_ROUNDING = "fake_quantized"
"""The submodule that rounds, where a person sees it who prints the model."""


def round_in_place(module: nn.Module, names: Sequence[str], rounding: FakeQuantized) -> None:
    """From now on `module.NAME` is that parameter rounded; `module.named_parameters()` has it as it is.

    Raises ValueError for what is no parameter of this module itself, and where one is rounded already.
    """
    for name in names:
        if module._parameters.get(name) is None:
            raise ValueError(f"a {type(module).__name__} has no parameter `{name}` to round")
    if roundings(module):
        raise ValueError(f"{', '.join(roundings(module))} of this {type(module).__name__} is rounded already")
    module.add_module(_ROUNDING, rounding)
    module.__class__ = _reading_rounded(type(module), tuple(names))  # type: ignore[arg-type]


def roundings(module: nn.Module) -> dict[str, FakeQuantized]:
    """The parameters that a module's forward reads rounded, also where torch's own parametrization was registered."""
    found = [(name, getattr(module, _ROUNDING)) for name in getattr(type(module), "rounded_parameters", ())]
    for name, steps in getattr(module, "parametrizations", {}).items():
        found += [(name, step) for step in steps if isinstance(step, FakeQuantized)]
    return dict(found)


@cache
def _reading_rounded(kind: type[nn.Module], names: tuple[str, ...]) -> type[nn.Module]:
    """The class of layers that read these parameters rounded, under the name of their own class."""
    reads = {name: property(partial(_rounded, name)) for name in names}
    return type(kind.__name__, (kind,), {"__module__": kind.__module__, "rounded_parameters": names, **reads})


def _rounded(name: str, module: nn.Module) -> Tensor | None:
    weight = module._parameters[name]
    rounding: nn.Module = getattr(module, _ROUNDING)
    return None if weight is None else rounding(weight)
