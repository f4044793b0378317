"""What Megatron and TransformerEngine do with a linear layer: the autocast around it, and the first matching recipe.

From the branch `miles-main`: `core/fp8_utils.py:513`, `core/fp4_utils.py:122`, `core/quantization/quant_config.py`,
`core/extensions/transformer_engine.py:115-235` and `core/transformer/multi_token_prediction.py:893`, by which FP8
surrounds every MTP layer and FP4 none.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from precc.contract import TrainLayout
from precc_miles.forms import NVFP4, Form
from precc_miles.names import Linear


@dataclass(frozen=True, slots=True)
class Recipe:
    """A module's recipe: the form it runs (None: BF16). `forced` recipes quantize inside a BF16 autocast too."""

    form: Form | None
    forced: bool = False


@dataclass(frozen=True, slots=True)
class Matcher:
    """One matcher of the YAML, by its label."""

    label: str
    pattern: str
    recipe: Recipe


@dataclass(frozen=True, slots=True)
class Training:
    """The trainer's arguments: the engine-wide form (None: BF16), layers in BF16, and ordered matchers.

    `flagged` is `--first-last-layers-bf16`, without which the counts are not read.
    """

    form: Form | None
    flagged: bool = False
    start: int = 1
    end: int = 1
    matchers: tuple[Matcher, ...] = ()

    def runs(self, linear: Linear, layers: int, layout: TrainLayout) -> frozenset[Form | None]:
        """The forms that a linear layer runs in on some rank, None for BF16: one, unless a pattern names a layer by a
        number that depends on the rank."""
        surrounding = self._autocast(linear, layers)
        return frozenset(
            self._in_force(linear.path(number), surrounding) for number in local_numbers(linear, layers, layout)
        )

    def _autocast(self, linear: Linear, layers: int) -> Form | None:
        if linear.layer is None:
            return None if self.form is NVFP4 else self.form
        kept = self.flagged and (linear.layer < self.start or linear.layer >= layers - self.end)
        return None if kept else self.form

    def _in_force(self, path: str, surrounding: Form | None) -> Form | None:
        recipe = next((matcher.recipe for matcher in self.matchers if fnmatchcase(path, matcher.pattern)), None)
        if recipe is None:
            return surrounding
        return recipe.form if surrounding is not None or recipe.forced else None


def local_numbers(linear: Linear, layers: int, layout: TrainLayout) -> range:
    """The numbers that a decoder layer may have on a rank: its stage's and virtual chunk's own."""
    if linear.layer is None or layout.pp * layout.vpp == 1:
        return range(linear.layer or 0, (linear.layer or 0) + 1)
    chunks = layout.pp * layout.vpp
    if layers % chunks:
        return range(min(linear.layer, layers // chunks) + 1)
    local = linear.layer % (layers // chunks)
    return range(local, local + 1)
