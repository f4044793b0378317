"""The wheel, built once and used as a stranger would."""

from __future__ import annotations

import json
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path
from zipfile import ZipFile

import pytest

import precc

TWO_LINES = "kv_b_proj: bf16\nexperts.*: nvfp4 per_token\n"
EXTENDED = 'extends "nvfp4_rl"\n\n@routed_experts: backward dequantized\n'


@pytest.fixture(scope="module")
def wheel(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's wheel."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(root)]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = out.iterdir()
    return path


@pytest.fixture(scope="module")
def held(wheel: Path) -> dict[str, bytes]:
    """The wheel's files by name."""
    with ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def bin(root: Path, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of a fresh environment that holds the wheel and what it asks for, and nothing else."""
    venv = tmp_path_factory.mktemp("fresh") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    pins = str(root / "tests/requirements/runtime.txt")
    pip = [sys.executable, "-m", "pip", "--python", str(venv), "install", "--quiet", "-c", pins, str(wheel)]
    installed = subprocess.run(pip, capture_output=True, text=True)
    assert installed.returncode == 0, installed.stderr
    return venv / "bin"


def test_its_name_is_the_version(wheel: Path) -> None:
    """One version, said in `precc.__version__` and in the project's metadata."""
    assert wheel.name == f"precc-{precc.__version__}-py3-none-any.whl"


def test_it_holds_every_package_and_no_other_code(held: dict[str, bytes], files: list[str]) -> None:
    """Every module of the compiler and of the backends, under its own name; no test, no `backends/`."""
    sources = {name.removeprefix("backends/") for name in files if name.startswith(("precc/", "backends/"))}
    shipped = {name for name in held if ".dist-info/" not in name and not name.startswith("precc/policies/")}
    assert shipped == sources


def test_it_holds_the_ready_policies(held: dict[str, bytes], root: Path) -> None:
    """The policies that `extends` finds by name are data of the package, byte for byte."""
    policies = {f"precc/policies/{path.name}": path.read_bytes() for path in (root / "policies").glob("*.prec")}
    assert policies
    assert {name: held.get(name) for name in policies} == policies


def test_it_says_that_it_is_typed_and_under_which_licence(held: dict[str, bytes], root: Path) -> None:
    """`py.typed` and the licence's text travel with it."""
    licences = [name for name in held if name.endswith("/licenses/LICENSE")]
    assert "precc/py.typed" in held
    assert [held[name] for name in licences] == [(root / "LICENSE").read_bytes()]


def test_its_entry_points_are_the_command_and_the_targets(held: dict[str, bytes]) -> None:
    """The command line and the three backends are found without a registry."""
    (text,) = [held[name].decode() for name in held if name.endswith("/entry_points.txt")]
    points = ConfigParser()
    points.read_string(text)
    assert dict(points["console_scripts"])["precc"] == "precc.cli:main"
    assert {"te", "sglang", "converter"} <= set(points["precc.backends"])


def test_it_lints_from_any_folder(bin: Path, tmp_path: Path) -> None:
    """A stranger's first two lines, in a folder that knows nothing of precc."""
    (tmp_path / "two.prec").write_text(TWO_LINES)
    done = subprocess.run([bin / "precc", "lint", "two.prec"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_compiles_a_policy_that_extends_a_ready_one(bin: Path, tmp_path: Path) -> None:
    """The shipped policy is found, every target is written and read back, and `verify` agrees afterwards."""
    (tmp_path / "mine.prec").write_text(EXTENDED)
    command = ["compile", "mine.prec", "--model", "qwen3-30b-a3b", "-o", "out", "--output-format", "json"]
    done = subprocess.run([bin / "precc", *command], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    verified = json.loads(done.stdout)["verified"]
    assert set(verified) == {"te", "sglang", "converter"}
    assert all(one["tensors"] == one["agree"] > 0 for one in verified.values())
    again = subprocess.run([bin / "precc", "verify", "out"], cwd=tmp_path, capture_output=True, text=True)
    assert again.returncode == 0, again.stdout + again.stderr
