"""A file that cannot be a policy is told so in one finding."""

from __future__ import annotations

import os
import socket
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


@pytest.mark.parametrize("through_link", [False, True])
def test_a_named_pipe_is_reported_and_not_waited_for(tmp_path: Path, through_link: bool) -> None:
    """Nobody may ever write to it."""
    pipe, link = tmp_path / "a.prec", tmp_path / "link.prec"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    finding = read_source(link if through_link else pipe)
    assert isinstance(finding, Diagnostic)
    assert finding.code == "P012"
    assert "named pipe" in finding.message


def test_a_device_and_a_socket_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device may hold no end."""
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("a.prec")
        for path, kind in (("/dev/zero", "a device"), ("a.prec", "a socket")):
            finding = read_source(path)
            assert isinstance(finding, Diagnostic)
            assert (finding.code, kind in finding.message) == ("P012", True)


def test_a_pipe_that_the_shell_opened_is_read() -> None:
    """`precc lint <(make_policy)`."""
    reading, writing = os.pipe()
    os.write(writing, b"default: bf16\n")
    os.close(writing)
    read = read_source(f"/dev/fd/{reading}")
    os.close(reading)
    assert isinstance(read, SourceFile)
    assert read.text == "default: bf16\n"


def test_a_byte_order_mark_is_removed(tmp_path: Path) -> None:
    """What some editors put in front of a text is not part of it."""
    path = tmp_path / "a.prec"
    path.write_bytes(b"\xef\xbb\xbfdefault: bf16\r\n")
    read = read_source(path)
    assert isinstance(read, SourceFile)
    assert read.text == "default: bf16\r\n"
