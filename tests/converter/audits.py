"""What the tests of `audit` start from: a converted checkpoint, copies of it, and what may be done to them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from converter.checkpoints import Weights
from converter.conversions import Case, case
from rollout.support import SMALL
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from precc.diagnostics import Diagnostic
from precc.graph.headers import Located, locate_tensors
from precc_converter import audit
from precc_converter.auditing.flow import Audit

INDEX = "model.safetensors.index.json"
SHARD_BYTES = 600_000


@dataclass(frozen=True)
class Written:
    """A conversion, and the folder that holds it or a copy of it."""

    case: Case
    folder: Path

    def copy(self, folder: Path) -> Written:
        """The same in a folder of its own, to be damaged."""
        return Written(self.case, shutil.copytree(self.folder, folder))

    def audit(self, **options: Any) -> Audit:
        return audit(self.folder, self.case.compiled, **options)

    def finding(self, **options: Any) -> Diagnostic:
        """The one finding of an audit."""
        (finding,) = self.audit(**options).findings
        assert finding.help
        return finding

    # --- what may be done to it ---------------------------------------------------------------------

    def locate(self, name: str) -> Located:
        """Where a tensor stands."""
        return next(found[name] for file in self.shards if name in (found := locate_tensors(file)))

    @property
    def shards(self) -> list[Path]:
        return sorted(self.folder.glob("*.safetensors"))

    def change(self, name: str, change: Callable[[Weights], object]) -> None:
        """Another content for the shard that holds a tensor; the index follows."""
        file = self.locate(name).file
        with safe_open(file, "pt") as shard:
            metadata = shard.metadata()
        weights = load_file(file)
        change(weights)
        save_file({name: tensor.contiguous() for name, tensor in weights.items()}, file, metadata=metadata)
        self.write_index()

    def write_index(self) -> None:
        """The index that the shards need now."""
        found = {name: at for file in self.shards for name, at in locate_tensors(file).items()}
        total = sum(at.end - at.start for at in found.values())
        shown = {"metadata": {"total_size": total}, "weight_map": {name: at.file.name for name, at in found.items()}}
        (self.folder / INDEX).write_text(json.dumps(shown))

    def edit(self, file: str, change: Callable[[dict[str, Any]], object]) -> None:
        """Another content for a JSON file."""
        shown = json.loads((self.folder / file).read_text())
        change(shown)
        (self.folder / file).write_text(json.dumps(shown))

    def quantization(self, change: Callable[[dict[str, Any]], object]) -> None:
        """Another quantization config, of a tool that knows no contract."""

        def foreign(shown: dict[str, Any]) -> None:
            shown["quantization_config"].pop("precc_contract", None)
            change(shown["quantization_config"])

        self.edit("config.json", foreign)

    def flip(self, name: str, at: int, mask: int = 1) -> None:
        """One byte of a tensor with some of its bits flipped."""
        located = self.locate(name)
        with located.file.open("r+b") as file:
            file.seek(located.start + at)
            (byte,) = file.read(1)
            file.seek(located.start + at)
            file.write(bytes([byte ^ mask]))

    def swap(self, one: str, other: str) -> None:
        """Two tensors of one size with each other's bytes."""
        places = [self.locate(one), self.locate(other)]
        held = [at.file.read_bytes()[at.start : at.end] for at in places]
        for at, data in zip(places, reversed(held), strict=True):
            with at.file.open("r+b") as file:
                file.seek(at.start)
                file.write(data)


class Conversions:
    """The conversion of a small mixture of experts by a ready policy, made once."""

    def __init__(self, folders: pytest.TempPathFactory) -> None:
        self._folders = folders
        self._made: dict[str, Written] = {}

    def __call__(self, policy: str) -> Written:
        if policy not in self._made:
            folder = self._folders.mktemp("written")
            prepared = case(folder, SMALL["qwen3_moe"], policy)
            out = prepared.convert(folder / "out", max_shard_size=SHARD_BYTES)
            self._made[policy] = Written(prepared, out)
        return self._made[policy]


def replaced(name: str, tensor: torch.Tensor | None = None, *also_removed: str) -> Callable[[Weights], object]:
    """A shard with one tensor replaced, or without it, and without others."""

    def change(weights: Weights) -> None:
        for gone in also_removed:
            del weights[gone]
        if tensor is None:
            del weights[name]
        else:
            weights[name] = tensor

    return change
