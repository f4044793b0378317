"""`precc attest`: whether a launch line, and the environment it starts in, run what was compiled."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import pytest
from cli.commands import PRECC, Run, Write
from cli.test_lean import loaded_by

from precc import __version__, load_contract
from precc.backend import available

QWEN = "qwen3-30b-a3b"
POLICY = "experts.*: nvfp4 per_token, backward high_precision\nlayers[-15%:]: bf16\n"
SIZES = ["--expert-model-parallel-size", "8", "--expert-tensor-parallel-size", "1"]


@pytest.fixture
def out(run: Run, project: Path, policy: Write, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiled folder, and an environment in which no variable of an engine is set."""
    for name in os.environ:
        if name.startswith(("NVTE_", "SGLANG_", "FLASHINFER_", "TRTLLM_")):
            monkeypatch.delenv(name)
    name = policy(POLICY)
    assert run("compile", name, "--model", QWEN, "--rollout", "tp=2 ep=2", "-o", "out").status == 0
    return project / "out"


def source(out: Path, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """This does to the environment what sourcing `env.sh` does."""
    facts = json.loads((out / target / "env.json").read_text())
    for name, value in facts["set"].items():
        monkeypatch.setenv(name, value)
    for name in facts["unset"]:
        monkeypatch.delenv(name, raising=False)


def trainer(out: Path) -> list[str]:
    """The launch line of a trainer."""
    words = ["torchrun", "pretrain_gpt.py", *(out / "te/megatron.args").read_text().split(), *SIZES]
    return [*words, "--te-precision-config-file", "out/te/te_precision.yaml"]


SERVER = ["python", "-m", "sglang.launch_server", "--model-path", "org/model", "--config", "out/sglang/server.yaml"]


def launcher(out: Path) -> list[str]:
    """The line of an RL launcher that starts both, in the words of Miles."""
    digest = load_contract(out).digest
    served = (
        "--rollout-num-gpus-per-engine 2 --sglang-ep-size 2 --sglang-dtype bfloat16 --sglang-kv-cache-dtype bf16 "
        "--sglang-quantization modelopt_fp4 --sglang-moe-runner-backend flashinfer_trtllm_routed "
        f"--sglang-weight-version 0:{digest} --sglang-mem-fraction-static 0.7 --hf-checkpoint org/model"
    )
    return ["python3", "train.py", *trainer(out)[2:], *served.split()]


def test_the_right_lines_pass(run: Run, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainer and server each in its own environment, and a launcher of both in both."""
    source(out, "te", monkeypatch)
    done = run("attest", "--contract", "out", "--", *trainer(out))
    assert (done.status, done.err) == (0, "")
    digest = load_contract(out).digest[:12]
    assert done.out.splitlines()[0].startswith("te: ")
    assert f"arguments and variables, all as contract {digest} needs" in done.out
    source(out, "sglang", monkeypatch)
    done = run("attest", "--contract", "out/contract.json", "--", *SERVER)
    assert (done.status, done.out.splitlines()[0].split(":")[0]) == (0, "sglang")
    done = run("attest", "--contract", "out", "--", *launcher(out))
    assert (done.status, done.err) == (0, "")
    assert [line.split(":")[0] for line in done.out.splitlines()] == ["sglang", "te", "no findings"]


def test_the_traps_of_a_launch_are_each_found(run: Run, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's own --fp8-param-gather, a stale variable, a missing --kv-cache-dtype: one finding each, status 1."""
    source(out, "te", monkeypatch)
    source(out, "sglang", monkeypatch)
    monkeypatch.setenv("NVTE_NVFP4_4OVER6", "all")
    words = launcher(out)
    at = words.index("--sglang-kv-cache-dtype")
    done = run("attest", "--contract", "out", "--", *words[:at], *words[at + 2 :], "--fp8-param-gather")
    assert done.status == 1
    assert done.out.count("error[") == 3
    assert "error[P702]: under --fp8-param-gather Megatron does not run this contract" in done.out
    assert "error[P511]: NVTE_NVFP4_4OVER6 is all; the contract needs it unset" in done.out
    assert "error[P511]: --sglang-kv-cache-dtype is missing (SGLang assumes auto)" in done.out
    assert "  = help: say --sglang-kv-cache-dtype bf16" in done.out
    assert "2 differ from what contract" in done.out
    assert done.out.endswith("3 errors\n")


def test_json_is_a_record_a_target_and_the_findings(run: Run, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The documented keys, findings as in lint."""
    source(out, "sglang", monkeypatch)
    done = run("attest", "--contract", "out", "--output-format", "json", "--", *SERVER, "--dtype", "half")
    assert done.status == 1
    assert list(done.json) == ["attested", "findings"]
    record = done.json["attested"]["sglang"]
    assert list(record) == ["target", "contract", "engines", "modules", "differences"]
    assert record["contract"] == load_contract(out).digest
    assert record["modules"] > 50
    (finding,) = done.json["findings"]
    assert (finding["code"], finding["severity"]) == ("P511", "error")
    assert record["differences"] == [finding["message"]]


def test_the_record_is_a_line_a_target(run: Run, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Appended, with the time in UTC and precc's version, whether the line passes or not."""
    source(out, "te", monkeypatch)
    source(out, "sglang", monkeypatch)
    arguments = ("attest", "--contract", "out", "--record", "run.jsonl", "--")
    assert run(*arguments, *launcher(out)).status == 0
    assert run(*arguments, *trainer(out), "--fp16").status == 1
    lines = [json.loads(line) for line in (out.parent / "run.jsonl").read_text().splitlines()]
    assert [(line["target"], len(line["differences"])) for line in lines] == [("sglang", 0), ("te", 0), ("te", 1)]
    assert {line["precc"] for line in lines} == {__version__}
    assert all(line["time"].endswith("+00:00") for line in lines)
    failed = run("attest", "--contract", "out", "--record", "no/such/run.jsonl", "--", *trainer(out))
    assert (failed.status, failed.out) == (2, "")
    assert failed.err == "precc: error: no/such/run.jsonl: No such file or directory\n"


def test_a_line_is_checked_for_the_target_that_is_asked_for(run: Run, out: Path) -> None:
    """Also one that precc does not recognize, and only for that one."""
    done = run("attest", "--contract", "out", "--target", "te", "--output-format", "json", "--", "./run.sh", "--bf16")
    assert done.status == 1
    assert list(done.json["attested"]) == ["te"]
    messages = [finding["message"] for finding in done.json["findings"]]
    assert any(message.startswith("--fp4-format is missing") for message in messages)
    assert not any(message.startswith("--bf16") for message in messages)
    both = run("attest", "--contract", "out", "-t", "sglang", "-t", "te", "--output-format", "json", "--", "./run.sh")
    assert list(both.json["attested"]) == ["sglang", "te"]


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--contract", "out", "python", "train.py", "--bf16"], "there is no `--`; put it in front of the launch line"),
        (["--contract", "out"], "there is no `--`"),
        (["--contract", "out", "--"], "there is no launch line behind `--`"),
        (["--contract", "out", "--", ""], "there is no launch line behind `--`"),
        (["--", "torchrun"], "the following arguments are required: --contract"),
        (["--contract", "out", "--", "vllm", "serve"], "starts no known engine; name the target to check it for"),
        (["--contract", "out", "-t", "vllm", "--", "x"], "--target names the target `vllm`, which is not installed"),
        (["--contract", "out", "-t", "converter", "--", "x"], "the target converter starts no engine"),
        (["--contract", "nowhere", "--", "x"], "nowhere: No such file or directory"),
        (["--contract", "out/report.html", "--", "x"], "out/report.html: not a contract"),
        (["--contract", "out/MANIFEST.json", "--", "x"], "out/MANIFEST.json: not a contract of version 1"),
        (["--contract", "policy.prec", "--", "x"], "policy.prec: not a contract"),
        (["--contract", "latin", "--", "x"], "latin: not a contract"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(run: Run, out: Path, arguments: list[str], words: str) -> None:
    """Nothing is claimed about a line that was not checked."""
    (out.parent / "latin").write_bytes(b"\xe9")
    done = run("attest", *arguments)
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith("precc: error: ")
    assert words in done.err
    assert done.err.count("\n") == 1


def test_an_edited_contract_attests_nothing(run: Run, out: Path) -> None:
    """Its own digest tells."""
    path = out / "contract.json"
    path.write_text(path.read_text().replace('"nvfp4"', '"mxfp4"'))
    done = run("attest", "--contract", "out", "--", *SERVER)
    assert done.status == 2
    assert "it was edited after it was compiled" in done.err


def test_a_line_of_another_contract_differs(run: Run, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files carry the other digest."""
    source(out, "te", monkeypatch)
    source(out, "sglang", monkeypatch)
    assert run("compile", "mxfp8_e2e", "--model", QWEN, "-o", "other").status == 0
    server = run("attest", "--contract", "other", "--", *SERVER)
    digest = load_contract(out).digest
    assert server.status == 1
    assert f"the line says --weight-version 0:{digest}" in server.out
    train = run("attest", "--contract", "other", "--", *trainer(out))
    assert train.status == 1
    assert f"out/te/te_precision.yaml belongs to contract {digest[:12]}" in train.out


def test_a_contract_for_one_target_says_nothing_of_another(run: Run, out: Path) -> None:
    """A trainer's line is not passed by a contract that was compiled for the server."""
    assert run("compile", "policy.prec", "--model", QWEN, "-t", "sglang", "-o", "served").status == 0
    done = run("attest", "--contract", "served", "--", *trainer(out))
    assert done.status == 2
    assert "the line starts te, and the contract is not for it" in done.err
    asked = run("attest", "--contract", "served", "-t", "te", "--", *trainer(out))
    assert asked.status == 2
    assert "the contract is for sglang, not for te" in asked.err


def test_variables_of_the_line_itself_count(run: Run, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A leading `env` changes them; a Ray job has those of its runtime environment and not the shell's."""
    source(out, "te", monkeypatch)
    arguments = ("attest", "--contract", "out", "--")
    stale = run(*arguments, "env", "NVTE_BACKWARD_OVERRIDE=dequantized", *trainer(out))
    assert "NVTE_BACKWARD_OVERRIDE is dequantized" in stale.out
    monkeypatch.setenv("NVTE_NVFP4_4OVER6", "all")
    for option in (["-u", "NVTE_NVFP4_4OVER6"], ["--unset=NVTE_NVFP4_4OVER6"]):
        assert run(*arguments, "/usr/bin/env", *option, *trainer(out)).status == 0
    variables = json.loads((out / "te/env.json").read_text())["set"]
    assert run(*arguments, "env", "-i", *(f"{n}={v}" for n, v in variables.items()), *trainer(out)).status == 0
    job = ["ray", "job", "submit", f"--runtime-env-json={json.dumps({'env_vars': variables})}", "--", *trainer(out)]
    assert run(*arguments, *job).status == 0
    empty = ["ray", "job", "submit", "--runtime-env-json", "{}", "--", *trainer(out)]
    assert "NVTE_BACKWARD_OVERRIDE is unset" in run(*arguments, *empty).out
    broken = run(*arguments, "ray", "job", "submit", "--runtime-env-json", "[]", "--", *trainer(out))
    assert (broken.status, broken.out) == (2, "")
    assert "holds no JSON object with `env_vars`" in broken.err


def test_a_launch_script_starts_only_what_was_attested(out: Path) -> None:
    """The documented pattern, in a shell: `precc attest … -- "$@" && exec "$@"`."""
    script = out.parent / "launch.sh"
    precc = shlex.join(PRECC)
    script.write_text(f'source out/sglang/env.sh\n{precc} attest --contract out -t sglang -- "$@" && exec "$@"\n')
    started = [*SERVER[5:], "started"]
    for dtype, expected in (("bfloat16", 0), ("half", 1)):
        words = shlex.join(["echo", *started, "--dtype", dtype])
        status = os.waitstatus_to_exitcode(
            os.system(f"cd {shlex.quote(str(out.parent))} && bash launch.sh {words} > log")
        )
        assert status == expected
        assert ("started" in (out.parent / "log").read_text().splitlines()[-1]) == (expected == 0)


def test_no_engine_is_loaded(run: Run, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their versions come from their metadata."""
    source(out, "te", monkeypatch)
    source(out, "sglang", monkeypatch)
    attest = "import sys; from precc.cli import main; assert main(sys.argv[1:]) == 0"
    loaded = loaded_by(attest, "attest", "--contract", "out", "--", *launcher(out), cwd=out.parent)
    assert not {"torch", "megatron", "transformer_engine", "sglang", "numpy"} & loaded


def test_every_target_that_starts_an_engine_can_be_attested() -> None:
    """Those that have arguments or variables; the others are told apart."""
    launched = {name for name, point in available().items() if hasattr(point.load(), "attest_launch")}
    assert {"te", "sglang"} <= launched


def test_the_help_shows_the_pattern(run: Run) -> None:
    """At the end of a launch script."""
    assert any('-- "$@" && exec "$@"' in line for line in run("attest", "--help").out.splitlines())


def test_a_layout_that_a_compile_refuses_is_found(run: Run, project: Path, out: Path) -> None:
    """The compiler's own rules are asked about the sizes of the line: 24 columns are no NVFP4 block."""
    name = "free.prec"
    (project / name).write_text(POLICY)
    assert run("compile", name, "--model", QWEN, "-o", "free").status == 0
    line = ["env", *(f"{k}={v}" for k, v in json.loads((project / "free/sglang/env.json").read_text())["set"].items())]
    words = [word.replace("out/", "free/") for word in SERVER]
    assert run("attest", "--contract", "free", "--", *line, *words, "--tp", "8", "--ep-size", "8").status == 0
    done = run("attest", "--contract", "free", "--", *line, *words, "--tp", "32")
    assert done.status == 1
    assert "error[P302]: in the layout of the line" in done.out
    assert "sizes that work for tp / ep: 1, 2, 4, 8 or 16" in done.out


def test_remedies_name_the_folder_that_was_given(run: Run, project: Path, out: Path) -> None:
    """Two compiled folders may lie side by side."""
    (project / "out").rename(project / "mine")
    done = run("attest", "--contract", "mine", "--", *(word.replace("out/", "mine/") for word in SERVER))
    assert done.status == 1
    assert "help: source mine/sglang/env.sh" in done.out
    assert "out/" not in done.out


def test_a_variable_in_front_of_the_program_counts(run: Run, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a shell reads it, without `env` as well."""
    source(out, "te", monkeypatch)
    done = run("attest", "--contract", "out", "--", "NVTE_BACKWARD_OVERRIDE=dequantized", *trainer(out))
    assert done.status == 1
    assert "NVTE_BACKWARD_OVERRIDE is dequantized; the contract needs high_precision" in done.out
