"""What a user may write for a model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from precc.graph import ModelError, catalogue, read_model


@pytest.mark.parametrize(
    "text, name",
    [
        ("qwen3-30b-a3b", "qwen3-30b-a3b"),
        ("Qwen3-30B-A3B", "qwen3-30b-a3b"),
        ("Qwen/Qwen3-30B-A3B", "qwen3-30b-a3b"),
        ("QWEN/qwen3-30b-a3b-fp8", "qwen3-30b-a3b-fp8"),
        ("deepseek-ai/DeepSeek-V3.2", "deepseek-v3.2"),
        ("moonshotai/Kimi-K2-Instruct", "kimi-k2"),
        ("meta-llama/Meta-Llama-3.1-8B", "llama-3.1-8b"),
        ("Qwen/Qwen3-Coder-480B-A35B-Instruct", "qwen3-coder-480b-a35b"),
    ],
)
def test_a_name_or_hugging_face_id_in_any_case_is_a_model(text: str, name: str) -> None:
    """The graph carries the catalogue's name, however it was asked for."""
    assert read_model(text).name == name


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "qwen3-30b", "someone/Qwen3-30B-A3B-tuned", "a\0b"),
        pytest.param("x" * 10_000, id="long"),
    ],
)
def test_an_unknown_name_is_told_with_what_works(text: str) -> None:
    """A fine-tune of a known model is not that model: it has to come with its configuration."""
    with pytest.raises(ModelError) as caught:
        read_model(text)
    assert "neither a known model nor a file" in caught.value.message
    assert len(caught.value.message) < 200
    assert "precc models" in caught.value.help


def test_a_misspelt_name_is_told_with_the_nearest() -> None:
    """A typing mistake costs one look."""
    with pytest.raises(ModelError) as caught:
        read_model("deepsek-v3")
    assert "`deepseek-v3`" in caught.value.help


def test_the_start_of_a_name_is_told_with_the_names_it_starts() -> None:
    """`qwen3-30b` is more likely an unfinished `qwen3-30b-a3b` than a mistyped `qwen3-32b`."""
    with pytest.raises(ModelError) as caught:
        read_model("Qwen/Qwen3-30B")
    assert caught.value.help.startswith("Did you mean `qwen3-30b-a3b` or `qwen3-30b-a3b-fp8`?")


def test_a_path_is_a_file_even_if_a_model_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`qwen3-8b` is the catalogue's model wherever one stands, `./qwen3-8b` the folder."""
    (tmp_path / "qwen3-8b").mkdir()
    monkeypatch.chdir(tmp_path)
    assert read_model("qwen3-8b").layers == 36
    with pytest.raises(ModelError, match="neither"):
        read_model("./qwen3-8b")


def test_every_catalogued_model_can_be_read() -> None:
    """No entry is broken, and each has its own name."""
    assert len(catalogue()) >= 28
    assert [read_model(name).name for name in catalogue()] == list(catalogue())


def test_reading_a_model_loads_nothing_heavy() -> None:
    """A lint with a model has to start at once."""
    heavy = "torch transformers pydantic safetensors yaml rich difflib importlib.metadata"
    script = f"""
import sys
from precc.graph import read_model, vocabulary
read_model("deepseek-v3"), vocabulary()
print(*(name for name in {heavy!r}.split() if name in sys.modules))
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ""
