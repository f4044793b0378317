"""`precc compile`: what it writes, what it prints, and how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from cli.commands import PRECC, Run, Write

import precc
from precc import load_contract
from precc.cli.output import MANIFEST

QWEN, DEEPSEEK = "qwen3-30b-a3b", "deepseek-v3"
TARGETS = ["converter", "sglang", "te"]


def tree(folder: Path) -> dict[str, bytes]:
    """Every file of a folder with its content."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a compiled folder."""
    content: dict[str, Any] = json.loads((folder / MANIFEST).read_text())
    return content


def test_a_compile_writes_every_file_of_each_target(run: Run, project: Path) -> None:
    """The files of the architecture's list, and nothing beside them."""
    result = run("compile", "nvfp4_rl", "--model", QWEN, "-o", "out")
    assert result.status == 0
    names = set(tree(project / "out"))
    assert {"contract.json", "MANIFEST.json", "report.html", "converter/plan.json"} <= names
    assert {"te/megatron.args", "te/te_precision.yaml", "te/env.sh", "te/env.json"} <= names
    assert {"sglang/quantization_config.json", "sglang/server.yaml", "sglang/env.sh", "sglang/env.json"} <= names
    assert {name.split("/")[0] for name in names if "/" in name} == set(TARGETS)
    assert "18,867 of 18,867 tensors read back and agree" in result.out
    assert [path.name for path in project.iterdir() if path.name.startswith(".out")] == []


def test_the_manifest_lists_digests_versions_and_layouts(run: Run, project: Path) -> None:
    """Enough to check a folder, and a running job, against it."""
    run("compile", "nvfp4_rl", "--model", QWEN, "-o", "out", "--rollout", "tp=2 ep=2", "--train", "megatron_core=0.19")
    shown = manifest(project / "out")
    keys = ["digest", "precc", "policy", "model", "targets", "engines", "layouts", "files"]
    assert list(shown) == keys
    assert (shown["precc"], shown["policy"], shown["model"]) == (precc.__version__, "nvfp4_rl", QWEN)
    assert shown["targets"] == TARGETS
    assert shown["engines"]["te"]["megatron_core"] == "0.19.2"
    assert shown["engines"]["sglang"].keys() == {"sglang", "flashinfer"}
    assert (shown["layouts"]["rollout"]["tp"], shown["layouts"]["rollout"]["stated"]) == (2, True)
    contents = tree(project / "out")
    assert shown["files"] == {name: sha256(data).hexdigest() for name, data in contents.items() if name != MANIFEST}


def test_the_contract_is_what_the_library_computes(run: Run, project: Path) -> None:
    """`contract.json` reads back, with the digest that the manifest has."""
    run("compile", "nvfp4_rl", "--model", QWEN, "-o", "out")
    contract = load_contract(project / "out")
    assert contract.digest == manifest(project / "out")["digest"]
    assert contract["model.layers.39.mlp.experts.127.up_proj"].decision.weight.format == "nvfp4"
    assert contract["model.layers.40.mlp.experts.127.up_proj"].decision.weight.format == "bf16"


def test_the_output_is_the_same_wherever_it_is_made(
    run: Run, project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """From another folder, by an absolute path, in a project elsewhere: byte for byte, without paths or times."""
    text = 'extends "base.prec"\nexperts.*: nvfp4 per_token\nkv_b_proj: bf16\n'
    other = tmp_path_factory.mktemp("elsewhere")
    for root in (project, other):
        (root / "policies").mkdir()
        (root / "pyproject.toml").touch()
        (root / "policies/base.prec").write_text("default: bf16\nlayers[-8:]: bf16\n")
        (root / "policies/mine.prec").write_text(text)
    assert run("compile", "policies/mine.prec", "--model", QWEN, "-o", "a").status == 0
    assert (
        run("compile", str(other / "policies/mine.prec"), "--model", QWEN.upper(), "-o", str(other / "b")).status == 0
    )
    os.chdir(project / "policies")
    assert run("compile", "mine.prec", "--model", QWEN, "-o", "../c").status == 0
    first = tree(project / "a")
    assert tree(other / "b") == first
    assert tree(project / "c") == first
    assert all(str(project).encode() not in data for data in first.values())
    assert b"policies/mine.prec" in first["contract.json"]


def test_scripts_are_executable_and_the_rest_is_not(run: Run, project: Path) -> None:
    """As the backend says of each artifact, under the user's umask."""
    previous = os.umask(0o027)
    try:
        done = precc.compile(Path(precc.__file__).parent.parent / "policies/nvfp4_rl.prec", QWEN)
        run("compile", "nvfp4_rl", "--model", QWEN, "-o", "out")
    finally:
        os.umask(previous)
    artifacts = [artifact for target in TARGETS for artifact in precc.emit(done, target)]
    assert artifacts
    for artifact in artifacts:
        mode = (project / "out" / artifact.path).stat().st_mode & 0o777
        assert mode == (0o750 if artifact.executable else 0o640)


def test_a_compile_replaces_what_an_earlier_one_wrote(run: Run, project: Path) -> None:
    """Files of a target that is not asked for any more are gone."""
    run("compile", "nvfp4_rl", "--model", QWEN, "-o", "out")
    assert run("compile", "nvfp4_rl", "--model", QWEN, "-o", "out", "--target", "converter").status == 0
    assert set(tree(project / "out")) == {"MANIFEST.json", "contract.json", "report.html", "converter/plan.json"}


def test_a_folder_that_is_none_of_ours_is_not_overwritten(run: Run, project: Path) -> None:
    """Neither one without a manifest, nor someone else's, nor ours with a stranger's file in it, nor a file."""
    compile = ("compile", "nvfp4_rl", "--model", QWEN, "-t", "converter", "-o")
    (project / "theirs").mkdir()
    (project / "theirs/data.bin").write_bytes(b"precious")
    refused = run(*compile, "theirs")
    assert refused.status == 2
    assert "holds files that precc did not write" in refused.err
    (project / "theirs" / MANIFEST).write_text('{"name": "app"}')
    assert run(*compile, "theirs").status == 2
    assert run(*compile, "ours").status == 0
    (project / "ours/weights.safetensors").write_bytes(b"precious")
    strange = run(*compile, "ours")
    assert strange.status == 2
    assert "holds `weights.safetensors`, which precc did not write" in strange.err
    (project / "file").write_text("x")
    assert run(*compile, "file").status == 2
    assert (
        (project / "theirs/data.bin").read_bytes() == (project / "ours/weights.safetensors").read_bytes() == b"precious"
    )


def test_an_empty_folder_and_one_through_a_link_are_filled(run: Run, project: Path) -> None:
    """Parents are made; a link stays a link."""
    (project / "real").mkdir()
    (project / "link").symlink_to("real")
    for folder in ("link", "new/deep/out"):
        assert run("compile", "bf16", "--model", QWEN, "-t", "converter", "-o", folder).status == 0
        assert MANIFEST in tree(project / folder)
    assert (project / "link").is_symlink()


def test_without_an_output_nothing_is_written(run: Run, project: Path) -> None:
    """The plan, what would be written, and an unchanged folder."""
    before = sorted(project.rglob("*"))
    result = run("compile", "nvfp4_rl", "--model", QWEN)
    assert result.status == 0
    assert "would write:\n  contract.json\n  report.html\n" in result.out
    assert sorted(project.rglob("*")) == before


def test_json_is_the_plan_and_what_was_made(run: Run, project: Path) -> None:
    """The documented keys, and the digests of the files."""
    result = run("compile", "nvfp4_rl", "--model", QWEN, "-o", "out", "--output-format", "json")
    shown = result.json
    plan = run("plan", "nvfp4_rl", "--model", QWEN, "--output-format", "json").json
    assert list(shown) == [*plan, "artifacts", "verified", "findings"]
    assert {key: shown[key] for key in plan if key != "rules"} == {key: plan[key] for key in plan if key != "rules"}
    assert shown["verified"] == {target: {"tensors": 18_867, "agree": 18_867} for target in TARGETS}
    for artifact in shown["artifacts"]:
        assert list(artifact) == ["target", "path", "sha256"]
        assert sha256((project / "out" / artifact["path"]).read_bytes()).hexdigest() == artifact["sha256"]


def test_a_policy_with_errors_writes_nothing(run: Run, project: Path, policy: Write) -> None:
    """An engine's refusal too: block-FP8 sizes that do not divide under tensor parallelism."""
    name = policy("@routed_experts: fp8_block\n")
    result = run("compile", name, "--model", QWEN, "-o", "out", "--rollout", "tp=8")
    assert (result.status, result.out) == (1, "")
    assert "error[P302]" in result.err
    assert not (project / "out").exists()
    shown = run("compile", name, "--model", QWEN, "--rollout", "tp=8", "--output-format", "json")
    assert shown.status == 1
    assert shown.json["artifacts"] == []
    assert "P302" in {item["code"] for item in shown.json["findings"]}


def test_a_policy_for_some_targets_is_compiled_for_these(run: Run, project: Path) -> None:
    """`int4_w4a16` says its own targets."""
    name = "int4_w4a16"
    result = run("compile", name, "--model", QWEN, "--output-format", "json")
    assert result.status == 0, result.out
    listed = manifest_targets(name)
    assert sorted(result.json["verified"]) == listed


def manifest_targets(name: str) -> list[str]:
    """The targets that a ready policy names, or all."""
    text = (Path(precc.__file__).parent.parent / f"policies/{name}.prec").read_text()
    lines = [line for line in text.splitlines() if line.startswith("targets:")]
    return sorted(word.strip() for word in lines[0].removeprefix("targets:").split(",")) if lines else TARGETS


def test_check_compiles_several_and_writes_nothing(run: Run, project: Path, policy: Write) -> None:
    """What the pre-commit hook runs: files from it, models from the project."""
    (project / "pyproject.toml").write_text(f'[tool.precc]\nmodels = ["{QWEN}", "{DEEPSEEK}"]\n')
    good, bad = policy("experts.*: mxfp8\n", "good.prec"), policy("kv_bproj: bf16\n", "bad.prec")
    before = sorted(project.rglob("*"))
    fine = run("compile", "--check", good)
    assert fine.status == 0
    assert f"good.prec on {QWEN}: converter 18,867 of 18,867 tensors agree" in fine.out
    mixed = run("compile", "--check", good, bad)
    assert mixed.status == 1
    assert f"bad.prec on {DEEPSEEK}: does not compile" in mixed.out
    assert "error[P101]" in mixed.err
    assert sorted(project.rglob("*")) == before
    shown = run("compile", "--check", good, bad, "--output-format", "json").json
    assert [(item["file"], item["model"]) for item in shown] == [
        (file, model) for file in (good, bad) for model in (QWEN, DEEPSEEK)
    ]


def test_check_with_an_output_tells_whether_it_is_up_to_date(run: Run, project: Path) -> None:
    """Each file that a compile would write otherwise is named."""
    arguments = ("compile", "nvfp4_rl", "--model", QWEN, "-t", "converter", "-o", "out")
    missing = run(*arguments, "--check")
    assert missing.status == 1
    assert "contract.json is missing" in missing.out
    run(*arguments)
    assert run(*arguments, "--check").status == 0
    (project / "out/converter/plan.json").write_text("{}")
    (project / "out/more.txt").write_text("")
    stale = run(*arguments, "--check")
    assert stale.status == 1
    assert "converter/plan.json is out of date" in stale.out
    assert "more.txt would not be written" in stale.out
    assert (project / "out/converter/plan.json").read_text() == "{}"


def test_several_policies_or_models_need_check(run: Run) -> None:
    """One folder holds one contract."""
    for arguments in (["bf16", "nvfp4_rl", "-m", QWEN], ["bf16", "-m", QWEN, "-m", DEEPSEEK, "-o", "out"]):
        result = run("compile", *arguments)
        assert result.status == 2
        assert "a compile is of one policy for one model" in result.err
    assert "a compile needs a model" in run("compile", "bf16").err


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), int(sys.argv[1])))
from precc.cli import main
sys.exit(main(sys.argv[2:]))
"""


def test_a_write_that_fails_leaves_the_old_output_whole(run: Run, project: Path) -> None:
    """The system refuses a file beyond a limit, as a full disk would: status 2, one line, nothing half-written."""
    run("compile", "nvfp4_rl", "--model", QWEN, "-o", "out")
    before = tree(project / "out")
    command = ["compile", "mxfp8_e2e", "--model", QWEN, "-o", "out"]
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, "4096", *command], capture_output=True, text=True, cwd=project
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("precc: error: ")
    assert "Traceback" not in done.stderr
    assert tree(project / "out") == before
    assert sorted(path.name for path in project.iterdir()) == [".git", "out"]


def test_a_compile_that_is_killed_leaves_one_output_or_the_other(run: Run, project: Path) -> None:
    """Killed as soon as its working folder appears: `out` is the old one or the new one, whole."""
    run("compile", "nvfp4_rl", "--model", QWEN, "-o", "out")
    old = tree(project / "out")
    command = [*PRECC, "compile", "mxfp8_e2e", "--model", QWEN, "-o", "out"]
    with subprocess.Popen(command, cwd=project, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and not any(project.glob(".out.precc-*/out/contract.json")):
            pass
        process.kill()
    assert tree(project / "out") == old or manifest(project / "out")["policy"] == "mxfp8_e2e"
    assert run("verify", "out").status == 0
