"""Megatron's own reading of its precision arguments, with its defaults and its checks.

No other argument may stand there. Free are the counts of layers in BF16 without their flag, which Megatron then
ignores, and the FP4 recipe without an FP4 format, or FP8's without one.
"""

from __future__ import annotations

from precc.backend import malformed
from precc.records import record
from precc_te.emission import ARGUMENTS
from precc_te.precision import Recipe

_SWITCHES = ("--bf16", "--first-last-layers-bf16")
_DEFAULTS: dict[str, str | None] = {
    "--transformer-impl": "transformer_engine",
    "--fp8-format": None,
    "--fp8-recipe": "delayed",
    "--fp4-format": None,
    "--fp4-recipe": "nvfp4",
    "--num-layers-at-start-in-bf16": "1",
    "--num-layers-at-end-in-bf16": "1",
    "--te-precision-config-file": None,
}
_CHOICES: dict[str, tuple[str, ...]] = {
    "--transformer-impl": ("transformer_engine",),
    "--fp8-format": ("e4m3", "hybrid"),
    "--fp8-recipe": ("tensorwise", "mxfp8", "blockwise"),
    "--fp4-format": ("e2m1",),
    "--fp4-recipe": ("nvfp4",),
}
"""The choices with which a module's recipe is in force; Megatron has others (`local`, `delayed`, `custom`)."""


@record
class Arguments:
    """The precision arguments of a job: its engine-wide mode and the layers the flags keep in BF16."""

    mode: Recipe
    hybrid: bool
    start: int
    end: int
    recipe_file: str | None

    def keeps_bf16(self, layer: int, layers: int) -> bool:
        """Whether the flags keep a decoder layer (a global number) out of the engine-wide mode."""
        return layer < self.start or layer >= layers - self.end


def read_arguments(text: str, layers: int, pipeline: int) -> Arguments:
    """This reads `megatron.args` as Megatron does. Raises Unsupported (P502) for what it would not start with."""
    found, switches = _parse(text)
    if "--bf16" not in switches:
        raise malformed(ARGUMENTS, "without `--bf16` Megatron trains in FP32")
    if found["--fp8-format"] is not None and found["--fp4-format"] is not None:
        raise malformed(ARGUMENTS, "Megatron takes `--fp8-format` or `--fp4-format`, not both")
    flagged = "--first-last-layers-bf16" in switches
    counts = tuple(_count(found, name) if flagged else 0 for name in list(_DEFAULTS)[5:7])
    if found["--fp8-format"] is not None and max(counts) > layers // pipeline:
        raise malformed(
            ARGUMENTS,
            f"Megatron keeps at most {layers // pipeline} first or last layers in BF16 under FP8 at pp={pipeline}",
        )
    hybrid = found["--fp8-format"] == "hybrid"
    return Arguments(_mode(found), hybrid, counts[0], counts[1], found["--te-precision-config-file"])


def _mode(found: dict[str, str | None]) -> Recipe:
    if found["--fp4-format"] is not None:
        return "nvfp4"
    if found["--fp8-format"] is None:
        return "bf16"
    return found["--fp8-recipe"]  # type: ignore[return-value]


def _parse(text: str) -> tuple[dict[str, str | None], set[str]]:
    """Values and switches; as in argparse, the last of a repeated argument counts."""
    found = dict(_DEFAULTS)
    switches: set[str] = set()
    words = iter(text.split())
    for word in words:
        name, _, value = word.partition("=")
        if word in _SWITCHES:
            switches.add(word)
        elif name in found:
            found[name] = value or next(words, None)
            _check(name, found[name])
        else:
            raise malformed(ARGUMENTS, f"`{word}` is no precision argument that a contract sets")
    if found["--fp8-format"] is not None and found["--fp8-recipe"] == "delayed":
        raise malformed(ARGUMENTS, "`--fp8-format` without `--fp8-recipe` means delayed scaling in Megatron")
    return found, switches


def _check(name: str, value: str | None) -> None:
    if value is None or (name in _CHOICES and value not in _CHOICES[name]):
        allowed = " or ".join(_CHOICES.get(name, ("a value",)))
        raise malformed(ARGUMENTS, f"`{name}` wants {allowed}, not {value or 'nothing'}")


def _count(found: dict[str, str | None], name: str) -> int:
    word = found[name] or ""
    if not word.isdecimal():
        raise malformed(ARGUMENTS, f"`{name}` wants a count, not {word}")
    return int(word)
