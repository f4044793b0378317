"""`docs/adding-a-family.md` has a whole family: here it is added and used."""

from __future__ import annotations

import json
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib import invalidate_caches
from pathlib import Path

import pytest
from generator.fences import fences

from precc.cli import main
from precc.graph import families
from precc.graph.model import ModelGraph
from precc.graph.reading import read_model
from precc.syntax.words import Role

PAGE = (Path(__file__).resolve().parents[2] / "docs/adding-a-family.md").read_text(encoding="utf-8")
FILES = {fence.file: fence.text for fence in fences(PAGE) if fence.file}
NAME = "precc.graph.families.olmoe"


def forget() -> None:
    """Families are read once a process."""
    families.families.cache_clear()
    families.vocabulary.cache_clear()
    invalidate_caches()


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelGraph]:
    """The graph of the page's `config.json`, the page's family lying in `precc.graph.families`."""
    folder = tmp_path / "olmoe-1b-7b"
    beside = tmp_path / "families"
    for place in (folder, beside):
        place.mkdir()
    for name, text in FILES.items():
        ((beside if name == "olmoe.py" else folder) / name).write_text(text, encoding="utf-8")
    monkeypatch.setattr(families, "__path__", [*families.__path__, str(beside)])
    monkeypatch.chdir(folder)
    forget()
    yield read_model("config.json")
    sys.modules.pop(NAME, None)
    monkeypatch.undo()
    forget()


def test_the_family_is_short() -> None:
    """The page promises one small table."""
    assert FILES["olmoe.py"].count("\n") < 100


def test_the_family_is_found_where_it_lies(model: ModelGraph) -> None:
    """No list has to name it, and its config leads to it."""
    assert model.family == "olmoe"
    assert "olmoe" in [family.name for family in families.families()]


def test_the_parameters_are_those_of_the_models_own_code(model: ModelGraph) -> None:
    """Transformers builds the same architecture without weights; its experts are stacked, their sum is the same."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config = transformers.OlmoeConfig(**json.loads(FILES["config.json"]))
    with torch.device("meta"):
        built = transformers.OlmoeForCausalLM(config)
    assert sum(parameter.numel() for parameter in built.parameters()) == model.parameters == 6_919_161_856
    plain = {name: tuple(p.shape) for name, p in built.named_parameters() if ".experts." not in name}
    ours = {tensor.name: tensor.shape for tensor in model.tensors if tensor.role is not Role.ROUTED_EXPERTS}
    assert ours == plain


def written_index() -> dict[str, dict[str, str]]:
    """The index of what transformers' own class would save."""
    script = str(Path(__file__).parents[1] / "graph/meta_models.py")
    configs = json.dumps({"olmoe": {"model_type": "olmoe", **json.loads(FILES["config.json"])}})
    done = subprocess.run([sys.executable, script], input=configs, capture_output=True, text=True, check=True)
    return {"weight_map": dict.fromkeys(json.loads(done.stdout)["olmoe"], "model.safetensors")}


def test_the_page_shows_what_the_commands_print(model: ModelGraph, capsys: pytest.CaptureFixture[str]) -> None:
    """All commands of the page, in the page's folder, where the index that transformers would write lies too."""
    Path("model.safetensors.index.json").write_text(json.dumps(written_index()), encoding="utf-8")
    for shown in [fence.text for fence in fences(PAGE) if fence.language == "text"]:
        command, _, output = shown.partition("\n")
        program, *arguments = shlex.split(command.removeprefix("$ "))
        if program == "python":
            runpy.run_path(arguments[0])
        else:
            main(arguments)
        printed = capsys.readouterr()
        assert printed.err + printed.out == output
