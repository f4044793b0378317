"""`megatron.args` as Megatron takes it: by its own parser where that is installed, else as fields of its config.

The parser (`megatron.training`) is part of Megatron-Core's wheels since 0.19; before, what each argument means is
the name of the configuration's field, and the types are those of the field.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from precc_te.upstream.models import last_stage
from precc_te.upstream.wire import Layout, Structure

FIELDS = (
    "params_dtype",
    "transformer_impl",
    "fp8",
    "fp8_recipe",
    "fp8_param",
    "fp4",
    "fp4_recipe",
    "fp4_param",
    "first_last_layers_bf16",
    "num_layers_at_start_in_bf16",
    "num_layers_at_end_in_bf16",
)
"""The fields of Megatron's configuration that precision arguments set."""

RECIPE_FILE = "te_precision_config_file"
PARSER = "megatron.training.arguments"


def load_parser() -> str:
    """This imports Megatron's argument parser and builds it once. The answer is why it is not there, or empty."""
    try:
        module: Any = importlib.import_module(PARSER)
    except ImportError as problem:
        return str(problem)
    built = module.add_megatron_arguments(argparse.ArgumentParser("pretrain_gpt.py", allow_abbrev=False))
    module.add_megatron_arguments = lambda _: built
    return ""


def launched(folder: Path, rank: int, layout: Layout) -> list[str]:
    """The argument list that a rank's program gets: `megatron.args`, and what the stage's wrapper adds.

    Raises RuntimeError with the wrapper's words where it refuses.
    """
    words = [*(folder / "megatron.args").read_text().split(), "--pipeline-model-parallel-size", str(layout.pp)]
    wrapper = folder / "with_stage_recipe.sh"
    if not wrapper.exists():
        return words
    environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(layout.pp)}
    shown = subprocess.run(
        ["bash", str(wrapper), "printf", "%s\\0", *words], env=environment, capture_output=True, text=True, check=False
    )
    if shown.returncode:
        raise RuntimeError(shown.stderr.strip())
    return shown.stdout.split("\0")[:-1]


def parsed(words: Sequence[str], structure: Structure, layout: Layout) -> dict[str, Any]:
    """The fields that an argument list sets, and the recipe file. Raises what Megatron raises."""
    if PARSER in sys.modules:
        return _by_megatron(words, structure, layout)
    return _by_fields(words)


def _by_megatron(words: Sequence[str], structure: Structure, layout: Layout) -> dict[str, Any]:
    """Megatron's own parser and its own checks of what it parsed."""
    from megatron.training import arguments

    os.environ["WORLD_SIZE"] = str(layout.pp)
    before, said = sys.argv, io.StringIO()
    sys.argv = ["pretrain_gpt.py", *words, *_model_words(structure, layout)]
    try:
        with contextlib.redirect_stderr(said):
            found = arguments.parse_args()
        arguments.validate_args(found)
    except SystemExit:
        raise RuntimeError(said.getvalue().strip().rpartition("\n")[2]) from None
    finally:
        sys.argv = before
    named = {name: _PARSED.get(name, name) for name in (*FIELDS, RECIPE_FILE)}
    return {name: getattr(found, attribute) for name, attribute in named.items()}


_PARSED = {"fp8_param": "fp8_param_gather", "fp4_param": "fp4_param_gather"}
"""Fields that the parser has under another name."""


def _model_words(structure: Structure, layout: Layout) -> Iterator[str]:
    """What else Megatron wants to be told of a job."""
    sizes = {
        "--num-layers": structure.layers,
        "--hidden-size": 64,
        "--num-attention-heads": 4,
        "--seq-length": 64,
        "--max-position-embeddings": 64,
        "--micro-batch-size": 1,
    }
    if structure.layers % layout.pp:
        sizes["--decoder-last-pipeline-num-layers"] = last_stage(structure.layers, layout.pp)
    if layout.vpp > 1:
        sizes["--num-virtual-stages-per-pipeline-rank"] = layout.vpp
    for name, size in sizes.items():
        yield from (name, str(size))


def _by_fields(words: Sequence[str]) -> dict[str, Any]:
    import torch
    from megatron.core.transformer import TransformerConfig

    known = {**{f"--{name.replace('_', '-')}": name for name in FIELDS}, **_RENAMED}
    found: dict[str, Any] = {"params_dtype": torch.bfloat16 if "--bf16" in words else torch.float32}
    rest = iter(words)
    for word in rest:
        name, _, value = word.partition("=")
        if name in _ASIDE:
            found.update(_aside(name, value, rest))
            continue
        if name not in known:
            raise RuntimeError(f"unrecognized arguments: {word}")
        default = getattr(TransformerConfig, known[name])
        if default is False:
            found[known[name]] = True
            continue
        text = value or next(rest)
        found[known[name]] = int(text) if isinstance(default, int) else text
    return found


_RENAMED = {
    "--fp8-format": "fp8",
    "--fp4-format": "fp4",
    "--fp8-param-gather": "fp8_param",
    "--fp4-param-gather": "fp4_param",
}
_ASIDE = {"--bf16": 0, "--pipeline-model-parallel-size": 1, "--te-precision-config-file": 1}
"""Arguments that are no field of the configuration, and how many values each takes."""


def _aside(name: str, value: str, rest: Iterator[str]) -> dict[str, Any]:
    text = value or (next(rest) if _ASIDE[name] else "")
    return {RECIPE_FILE: text} if name == "--te-precision-config-file" else {}
