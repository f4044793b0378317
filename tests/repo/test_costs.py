"""What can be counted exactly of what things cost; times are for `make bench`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import precc
from precc.contract import contract_to_json
from precc.graph import read_model

HEAVY = {
    "torch",
    "numpy",
    "transformers",
    "pydantic",
    "rich",
    "yaml",
    "lark",
    "importlib.metadata",
    "typing_extensions",
}
EXPERTS = (256, 2_560, 25_600)


@pytest.fixture(scope="module")
def configs(root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """The `config.json` of DeepSeek-V3 with ever more routed experts a layer."""
    facts = json.loads((root / "precc/graph/models/deepseek-v3.json").read_text())["config"]
    folder = tmp_path_factory.mktemp("configs")
    paths = {experts: folder / f"{experts}.json" for experts in EXPERTS}
    for experts, path in paths.items():
        path.write_text(json.dumps({**facts, "n_routed_experts": experts}))
    return paths


def test_lint_loads_nothing_heavy(root: Path) -> None:
    """A lint is started at every commit and keystroke, so it loads what reading a policy takes and no more."""
    code = "import sys; from precc.cli import main; status = main(sys.argv[1:]); print(status, *sys.modules)"
    command = [sys.executable, "-c", code, "lint", str(root / "policies/nvfp4_rl.prec")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    status, *modules = done.stdout.splitlines()[-1].split()
    assert status == "0"
    assert HEAVY & set(modules) == set()


def test_a_graph_has_as_many_objects_for_256_experts_as_for_25600(configs: dict[int, Path]) -> None:
    """Experts are ranges: the tensors that the graph stands for grow a hundredfold, the graph does not."""
    graphs = {experts: read_model(str(path)) for experts, path in configs.items()}
    assert len({len(graph.tensors) for graph in graphs.values()}) == 1
    assert [max(tensor.count for tensor in graph.tensors) for graph in graphs.values()] == list(EXPERTS)


def test_a_contract_has_as_many_lines_for_256_experts_as_for_25600(root: Path, configs: dict[int, Path]) -> None:
    """What is decided, folded and hashed is what the rules distinguish."""
    policy = root / "policies/nvfp4_rl.prec"
    contracts = [precc.compile(policy, path) for path in configs.values()]
    assert len({len(contract.entries) for contract in contracts}) == 1
    assert len({len(contract_to_json(contract)["tensors"]) for contract in contracts}) == 1


@pytest.mark.parametrize("target", ["te", "sglang", "converter", "miles"])
def test_artifacts_are_as_long_for_256_experts_as_for_25600(root: Path, configs: dict[int, Path], target: str) -> None:
    """No target lists experts one by one: the files differ in digits only, and engines read them as fast."""
    policy = root / "policies/nvfp4_rl.prec"
    artifacts = [precc.emit(precc.compile(policy, path), target) for path in configs.values()]
    lengths = [{one.path: one.text.count("\n") for one in written} for written in artifacts]
    assert lengths[0]
    assert lengths[0] == lengths[1] == lengths[2]
