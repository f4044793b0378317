"""Which FlashInfer artifacts are made for: the one that their SGLang requires."""

from __future__ import annotations

import json
from importlib.metadata import requires
from pathlib import Path

import pytest

from precc.backend import installed_versions, versions_for
from precc.cli import main
from precc.contract import load_contract
from precc_sglang import backend
from precc_sglang.versions import FLASHINFER, RELEASES, SGLANG

POLICY = "targets: sglang\nexperts.*: weight nvfp4, input nvfp4 per_token, train bf16\n"


def compiled(folder: Path, layout: str) -> Path:
    """A compiled folder of a layout."""
    folder.mkdir(exist_ok=True)
    (folder / "p.prec").write_text(f"{POLICY}{layout}")
    status = main(["compile", str(folder / "p.prec"), "--model", "qwen3-30b-a3b", "-o", str(folder / "out")])
    assert status == 0
    return folder / "out"


@pytest.mark.parametrize("sglang", SGLANG)
def test_the_manifest_names_the_flashinfer_of_its_sglang(sglang: str, tmp_path: Path) -> None:
    """Among the engines, and in the layout."""
    shown = json.loads((compiled(tmp_path, f"rollout: sglang={sglang}\n") / "MANIFEST.json").read_text())
    wanted = {"sglang": sglang, "flashinfer": RELEASES[sglang].flashinfer}
    assert shown["engines"]["sglang"] == wanted
    assert {key: shown["layouts"]["rollout"][key] for key in wanted} == wanted
    assert wanted["flashinfer"] in FLASHINFER


def test_a_stated_flashinfer_is_the_stated_one(tmp_path: Path) -> None:
    """Whoever installs another one says so."""
    out = compiled(tmp_path, "rollout: sglang=0.5.16 flashinfer=0.7.4\n")
    assert versions_for(backend, load_contract(out)) == {"sglang": "0.5.16", "flashinfer": "0.7.4"}


def test_the_installed_sglang_requires_what_the_table_says() -> None:
    """By the metadata of its package."""
    installed = installed_versions({"sglang": "sglang"}).get("sglang", "")
    assert installed in RELEASES
    pins = [line for line in requires("sglang") or () if line.startswith(("flashinfer_python", "flashinfer-python"))]
    assert pins
    assert all(f"=={RELEASES[installed].flashinfer}" in pin for pin in pins)
