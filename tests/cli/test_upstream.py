"""`--upstream` of `verify` and `compile`: the installed engines judge, and one that cannot is never passed over."""

from __future__ import annotations

import json
import os
import site
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest
from cli.commands import Result, Run, Write, edit

import precc

POLICY = "experts.*: nvfp4 per_token, backward high_precision\nlayers[-1:]: bf16\ntargets: te\n"
SMALL = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "intermediate_size": 512,
    "moe_intermediate_size": 128,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "vocab_size": 512,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}


@pytest.fixture
def model(project: Path) -> str:
    """A small model, known by its configuration."""
    (project / "small").mkdir()
    (project / "small/config.json").write_text(json.dumps(SMALL))
    return "small"


# --- the real engine ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_installed_engine_judges_a_folder_as_it_is(run: Run, project: Path, policy: Write, model: str) -> None:
    """It agrees with a compile; of an artifact that was edited it says what it would run."""
    name = policy(POLICY)
    assert run("compile", name, "--model", model, "-o", "out").status == 0
    agreed = run("verify", "out", "--upstream")
    assert (agreed.status, agreed.err) == (0, "")
    first, sentence, *checks, last = agreed.out.splitlines()
    assert first == "te: 45 of 45 tensors agree"
    assert sentence.startswith("te: megatron-core ")
    assert sentence.endswith(" run 32 of 32 tensors as the contract says")
    assert checks
    assert all(check.startswith("  ") for check in checks)
    assert last == "no findings"
    edit(
        project / "out",
        "te/te_precision.yaml",
        'linear_fc2", config: nvfp4_per_token_high_precision',
        'linear_fc2", config: bf16',
    )
    shown = run("verify", "out", "--upstream", "--output-format", "json")
    assert shown.status == 1
    judged = shown.json["upstream"]["te"]
    assert list(judged) == ["engines", "tensors", "agree", "checks"]
    assert judged["tensors"] - judged["agree"] == 4
    codes = [finding["code"] for finding in shown.json["findings"]]
    assert {"P501", "P511"} <= set(codes)


@pytest.mark.slow
def test_a_compile_that_the_engine_agrees_with_is_written(run: Run, project: Path, policy: Write, model: str) -> None:
    """What was judged stands in the output, and the files in the folder."""
    done = run("compile", policy(POLICY), "--model", model, "--upstream", "-o", "out", "--output-format", "json")
    assert (done.status, done.err) == (0, "")
    assert list(done.json)[-2:] == ["findings", "upstream"]
    assert done.json["upstream"]["te"]["agree"] == done.json["upstream"]["te"]["tensors"] == 32
    assert (project / "out/te/megatron.args").is_file()


# --- where no engine is installed --------------------------------------------------------------------


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has precc and what it needs, and no engine."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    root = Path(precc.__file__).parent.parent
    (packages / "precc.pth").write_text(f"{root}\n{root / 'backends'}\n")
    for installed in map(Path, site.getsitepackages()):
        for pattern in ("precc-*.dist-info", "yaml", "_yaml", "rich", "pygments", "markdown_it", "mdurl"):
            for found in installed.glob(pattern):
                (packages / found.name).symlink_to(found)
    return folder / "bin/python"


def without_engines(bare: Path, project: Path, *arguments: str) -> Result:
    """This runs `precc` in that environment."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [str(bare), "-m", "precc", *arguments]
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    return Result(done.returncode, done.stdout, done.stderr)


def test_an_engine_that_is_missing_is_said_with_what_to_install(
    run: Run, project: Path, policy: Write, model: str, bare: Path
) -> None:
    """Status 2, whatever else was found; a compile writes nothing."""
    name = policy(POLICY.replace("targets: te\n", ""))
    done = without_engines(bare, project, "compile", name, "--model", model, "--upstream", "-o", "out")
    assert done.status == 2, done.err
    assert "precc: te: no engine judged it: " in done.err
    assert "pip install" in done.err
    assert "Traceback" not in done.err
    assert not (project / "out").exists()
    assert without_engines(bare, project, "compile", name, "--model", model, "-o", "out").status == 0
    shown = without_engines(bare, project, "verify", "out", "--upstream", "--output-format", "json")
    assert shown.status == 2
    assert list(shown.json["upstream"]["te"]) == ["unavailable", "help"]
    assert shown.json["upstream"]["converter"] is None
    assert shown.json["findings"] == []
    assert without_engines(bare, project, "verify", "out").status == 0


# --- every answer that an engine can give ------------------------------------------------------------

BACKEND = '''
import os

from precc.backend import Artifact, EngineUnavailable, Judgement, Reading
from precc.diagnostics import error


class Listing:
    """A target whose one file lists the decisions, and whose engine answers what ANSWER says."""

    name = "listing"
    engines = {}
    rules = "precc_listing_rules"

    def names(self, contract, entry):
        return {}

    def emit(self, contract):
        return (Artifact("listing/decisions.txt", "".join(f"{line}\\\\n" for line in self.decides(contract))),)

    def decides(self, contract):
        return [str(entry.decision) for entry in contract.entries]

    def read_back(self, contract, artifacts):
        lines = artifacts["listing/decisions.txt"].splitlines()
        return [Reading(line, "decisions.txt") for line in lines]

    def upstream(self, contract, artifacts):
        assert {"converter/plan.json", "listing/decisions.txt"} <= artifacts.keys()
        if os.environ["ANSWER"] == "missing":
            raise EngineUnavailable("lister is not installed", "pip install lister")
        differing = os.environ["ANSWER"] == "differs"
        found = [error("P511", "lister runs `lm_head` as int2")] if differing else []
        return Judgement({"lister": "2.1"}, 9, 9 - len(found), tuple(found), ("a list of 9", "its order"))


backend = Listing()
'''


@pytest.fixture
def listing(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed distribution that brings a target with an engine."""
    (project / "precc_listing.py").write_text(BACKEND.replace("\\\\n", "\\n"))
    (project / "precc_listing_rules").mkdir()
    (project / "precc_listing_rules/__init__.py").touch()
    info = project / "listing-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: listing\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[precc.backends]\nlisting = precc_listing:backend\n")
    monkeypatch.syspath_prepend(str(project))
    for name in [name for name in sys.modules if name.startswith("precc_listing")]:
        monkeypatch.delitem(sys.modules, name)


def compile_listing(run: Run, *more: str) -> Result:
    """A compile for that target and for one without an engine."""
    return run("compile", "bf16", "--model", "small", "-t", "listing", "-t", "converter", *more)


@pytest.mark.usefixtures("listing", "model")
def test_each_answer_of_an_engine_has_its_status(run: Run, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Agrees: written. Decides otherwise: status 1, nothing written. Not there: status 2, nothing written."""
    expected: dict[str, tuple[int, str]] = {
        "missing": (2, "precc: listing: no engine judged it: lister is not installed; pip install lister\n"),
        "differs": (1, "error[P511]: lister runs `lm_head` as int2"),
        "agrees": (0, ""),
    }
    for answer, (status, words) in expected.items():
        monkeypatch.setenv("ANSWER", answer)
        done = compile_listing(run, "--upstream", "-o", "out")
        assert done.status == status
        assert words in done.err
        assert (project / "out").exists() == (status == 0)
        assert "converter: no engine of its own" in done.out
    assert "listing: lister 2.1 runs 9 of 9 tensors as the contract says\n  a list of 9\n  its order\n" in done.out


@pytest.mark.usefixtures("listing", "model")
def test_verify_shows_findings_beside_an_engine_that_is_missing(
    run: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are said, and the status is that of the missing engine."""
    assert compile_listing(run, "-o", "out").status == 0
    (project / "out/report.html").write_text("")
    monkeypatch.setenv("ANSWER", "missing")
    done = run("verify", "out", "--upstream")
    assert done.status == 2
    assert "error[P509]: report.html was changed after it was written" in done.out
    assert "lister is not installed; pip install lister" in done.err
    monkeypatch.setenv("ANSWER", "differs")
    shown = run("verify", "out", "--upstream", "--output-format", "json")
    assert (shown.status, shown.err) == (1, "")
    assert [finding["code"] for finding in shown.json["findings"]] == ["P509", "P511"]
    judged: dict[str, Any] = {
        "engines": {"lister": "2.1"},
        "tensors": 9,
        "agree": 8,
        "checks": ["a list of 9", "its order"],
    }
    assert shown.json["upstream"] == {"listing": judged, "converter": None}


@pytest.mark.usefixtures("listing", "model")
def test_check_asks_the_engine_too(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a pre-commit hook may; a policy with errors is not given to it."""
    monkeypatch.setenv("ANSWER", "differs")
    done = compile_listing(run, "--upstream", "--check")
    assert done.status == 1
    assert "listing: lister 2.1 runs 8 of 9 tensors" in done.out
    monkeypatch.delenv("ANSWER")
    refused = run(
        "compile", "--check", "int4_w4a16", "--model", "small", "-t", "sglang", "--upstream", "--rollout", "tp=3"
    )
    assert refused.status == 1
    assert "does not compile" in refused.out
