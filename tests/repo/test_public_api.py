"""The names that `precc` promises."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import precc

PUBLIC = ["Contract", "compile", "emit", "load_contract"]


def test_the_public_names_are_these() -> None:
    """A name that comes or goes is a decision, and this list is where it is made."""
    assert sorted(precc.__all__) == PUBLIC


def test_every_public_name_is_there_with_its_documentation() -> None:
    """Each is loaded when asked for, and says what it is."""
    for name in precc.__all__:
        assert inspect.getdoc(getattr(precc, name)), name


def test_a_type_checker_sees_the_same_names(root: Path) -> None:
    """What `__getattr__` answers and what is imported under `TYPE_CHECKING` are one list."""
    tree = ast.parse((root / "precc/__init__.py").read_text())
    guarded = [node for node in tree.body if isinstance(node, ast.If)]
    shown = [alias.name for node in ast.walk(guarded[0]) if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert sorted(shown) == PUBLIC


def test_an_unknown_name_is_an_attribute_error() -> None:
    """`from precc import contrat` fails as from any module."""
    assert not hasattr(precc, "contrat")


def test_importing_precc_loads_none_of_its_parts() -> None:
    """`precc lint` pays for what it uses, not for the library's face."""
    code = "import sys, precc; print(*sorted(m for m in sys.modules if m.startswith('precc')))"
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert out.split() == ["precc"]
