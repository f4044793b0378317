"""A file that cannot be a policy is told so in one finding."""

from __future__ import annotations

from pathlib import Path

import pytest

from precc.diagnostics import Diagnostic
from precc.source import SourceFile
from precc.syntax import read_source

BAD = {
    "binary": (b"\x7fELF\0\0", "it is binary"),
    "UTF-16": ("default: bf16".encode("utf-16"), "it is UTF-16"),
    "not UTF-8": (b"default: bf16\n# caf\xe9\n", "line 2 is not UTF-8"),
    "too large": (b"# comment\n" * 200_000, "it is larger than 1 MiB"),
    "a line too long": (b"default: bf16\n#" + b"x" * 70_000, "line 2 is longer than 64 KiB"),
}


@pytest.mark.parametrize("data, reason", BAD.values(), ids=BAD.keys())
def test_a_file_that_is_no_policy_is_reported(tmp_path: Path, data: bytes, reason: str) -> None:
    """The finding names the file and the reason."""
    path = tmp_path / "a.prec"
    path.write_bytes(data)
    finding = read_source(path)
    assert isinstance(finding, Diagnostic)
    assert finding.code == "P012"
    assert reason in finding.message
    assert finding.help
    assert finding.span
    assert finding.span.source.path == str(path)


@pytest.mark.parametrize("name", ["missing.prec", "", "a\0b"])
def test_a_path_that_leads_nowhere_is_reported(tmp_path: Path, name: str) -> None:
    """A missing file, a folder, and a path that no system takes."""
    finding = read_source(f"{tmp_path}/{name}")
    assert isinstance(finding, Diagnostic)
    assert finding.code == "P012"


def test_a_byte_order_mark_is_removed(tmp_path: Path) -> None:
    """What some editors put in front of a text is not part of it."""
    path = tmp_path / "a.prec"
    path.write_bytes(b"\xef\xbb\xbfdefault: bf16\r\n")
    read = read_source(path)
    assert isinstance(read, SourceFile)
    assert read.text == "default: bf16\r\n"
