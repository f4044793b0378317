"""A folder in which a conversion stopped: what goes on there, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from converter.conversions import Case, compile_for
from converter.damaging import changed, first_shard
from safetensors.torch import load_file, save_file

from precc_converter import NotConverted
from precc_converter.conversion.state import STATE


@pytest.fixture
def unfinished(copied: Case, tmp_path: Path) -> Path:
    """A folder in which a conversion stopped after its first shards."""
    out = tmp_path / "out"
    changed(copied, lambda weights: weights["model.layers.2.mlp.experts.0.up_proj.weight"].fill_(torch.inf))
    with pytest.raises(NotConverted, match=r"P602"):
        copied.convert(out, max_shard_size=300_000)
    return out


def test_an_unfinished_folder_looks_unfinished(unfinished: Path) -> None:
    """Whole shards and the mark; no configuration, no index, nothing half-written."""
    found = {path.name for path in unfinished.iterdir()}
    assert STATE in found
    assert found - {STATE} == {path.name for path in unfinished.glob("*.safetensors")}
    assert len(found) > 2


def test_an_unfinished_folder_is_not_gone_on_with_in_another_way(copied: Case, unfinished: Path) -> None:
    """Other shard size, other source: the files would not belong together."""
    with pytest.raises(NotConverted, match=r"P605.*max_shard_size is 300000, not 5000000000"):
        copied.convert(unfinished)
    changed(copied, lambda weights: weights["model.layers.2.mlp.experts.0.up_proj.weight"].fill_(1))
    with pytest.raises(NotConverted, match=r"P605.*the shard `model-0000.-of-00002.safetensors` of its source"):
        copied.convert(unfinished, max_shard_size=300_000)


def test_a_shard_that_was_touched_is_named_with_its_times(copied: Case, unfinished: Path) -> None:
    """With its own time back, the conversion goes on to where it stopped."""
    shard = first_shard(copied)
    before = os.stat(shard)
    os.utime(shard, ns=(0, 10**18))
    with pytest.raises(NotConverted) as refusal:
        copied.convert(unfinished, max_shard_size=300_000)
    (finding,) = refusal.value.findings
    assert f"the shard `{shard.name}` of its source was changed on " in finding.message
    assert ", and again on 2001-09-0" in finding.message
    seconds = f"{before.st_mtime_ns // 10**9}.{before.st_mtime_ns % 10**9:09}"
    assert f"`touch -d @{seconds} {shard.name}` lets it go on" in str(finding.help)
    os.utime(shard, ns=(0, before.st_mtime_ns))
    with pytest.raises(NotConverted, match="P602"):
        copied.convert(unfinished, max_shard_size=300_000)


def test_a_shard_of_another_size_is_named_with_both(copied: Case, unfinished: Path) -> None:
    """What it had when the conversion began, and what it has."""
    shard, size = first_shard(copied), os.path.getsize(first_shard(copied))
    weights = load_file(shard)
    save_file(weights, shard, metadata={"format": "pt", "note": "x" * 800})
    said = rf"`{shard.name}` of its source had {size:,} bytes, and has {os.path.getsize(shard):,}"
    with pytest.raises(NotConverted, match=said):
        copied.convert(unfinished, max_shard_size=300_000)


def test_a_contract_that_is_not_the_one_that_began_is_named_in_short(
    copied: Case, unfinished: Path, tmp_path: Path
) -> None:
    """Both digests, as every other line shows them."""
    other = Case(copied.source, compile_for(copied.source, "mxfp8_e2e", tmp_path / "other"))
    said = f"its contract is {copied.contract.digest[:12]}, not {other.contract.digest[:12]}$"
    with pytest.raises(NotConverted, match=said):
        other.convert(unfinished, max_shard_size=300_000)


def test_an_unfinished_folder_is_no_source(copied: Case, unfinished: Path, tmp_path: Path) -> None:
    """It is refused by its mark, not by what is missing."""
    with pytest.raises(NotConverted, match=r"P605.*itself an unfinished conversion"):
        Case(unfinished, copied.compiled).convert(tmp_path / "other")
