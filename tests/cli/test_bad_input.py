"""Bad input: one clear error each, the documented status, never a traceback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli.commands import Result, Run

QWEN = "qwen3-30b-a3b"

POLICIES: dict[str, tuple[bytes, str]] = {
    "binary": (bytes(range(256)), "P012"),
    "UTF-16": ("default: bf16".encode("utf-16"), "P012"),
    "not UTF-8": (b"# caf\xe9\n", "P012"),
    "a line of 1 MB": (b"a" * 1_000_000, "P012"),
    "deep parentheses": (b"(" * 5_000 + b"a" + b")" * 5_000 + b": bf16\n", "P012"),
    "deep brackets": (b"layers" + b"[" * 5_000 + b": bf16\n", "P005"),
    "an unknown format": (b"default: mxfp9\n", "P002"),
    "an unknown word": (b"experts.*: nvfp4 per_tocken\n", ""),
    "a cycle": (b'extends "policy.prec"\n', "P015"),
    "a climb": (b'extends "../../../etc/policy.prec"\n', "P016"),
    "no such base": (b'extends "nvfp4_lr"\n', "P014"),
}


def is_clear(result: Result) -> bool:
    """Whether nothing looks like Python."""
    return "Traceback" not in result.err and "internal error" not in result.err


@pytest.mark.parametrize("what", POLICIES)
def test_a_bad_policy_is_one_error(run: Run, project: Path, what: str) -> None:
    """In every verb that takes a policy, with the same code."""
    content, code = POLICIES[what]
    (project / "policy.prec").write_bytes(content)
    linted = run("lint", "policy.prec", "--output-format", "json")
    assert linted.status == 1
    assert is_clear(linted)
    errors = [item["code"] for item in linted.json if item["severity"] == "error"]
    assert len(errors) == 1
    assert code in errors[0]
    for verb in (["compile", "policy.prec"], ["plan", "policy.prec"], ["explain", "policy.prec", "lm_head"]):
        result = run(*verb, "--model", QWEN)
        assert (result.status, result.out) == (1, "")
        assert is_clear(result)
        assert f"error[{errors[0]}]" in result.err


@pytest.mark.parametrize("content", [b"", b"\n\n", b"# to be written\n", b'policy "x"\n'])
def test_a_policy_that_says_nothing_is_an_error(run: Run, project: Path, content: bytes) -> None:
    """Nobody means everything in BF16 by an empty file; a failed write leaves one."""
    (project / "policy.prec").write_bytes(content)
    for command in (["lint"], ["compile", "--check"], ["plan"]):
        result = run(*command, "policy.prec", "--model", "qwen3-8b")
        assert result.status == 1
        assert (result.out + result.err).count("error[P022]: this policy says nothing") == 1


@pytest.mark.parametrize("name", ["missing.prec", "no/such/file", "nvfp4_lr", "a\0b", ""])
def test_a_policy_that_is_not_there_is_a_usage_error(run: Run, name: str) -> None:
    """Neither a file nor a ready policy."""
    for verb in (["lint"], ["fmt"], ["compile", "--model", QWEN], ["plan", "--model", QWEN]):
        result = run(*verb, name)
        assert (result.status, result.out) == (2, "")
        assert result.err.startswith("precc: error: ")
        assert result.err.count("\n") == 1
        assert is_clear(result)


def test_a_ready_policys_misspelt_name_is_told_with_the_nearest(run: Run) -> None:
    """As names of tensors are."""
    assert "did you mean `nvfp4_rl`?" in run("plan", "nvfp4_lr", "--model", QWEN).err


def test_a_folder_without_policies_is_a_usage_error(run: Run, project: Path) -> None:
    """A pre-commit hook that checks nothing must not be green."""
    (project / "empty").mkdir()
    assert run("lint", "empty").status == 2
    assert "there is no .prec file in the folder `empty`" in run("lint", "empty").err
    assert run("plan", "empty", "--model", QWEN).status == 2


CONFIGS: dict[str, object] = {
    "no object": [],
    "nothing": {},
    "an unknown family": {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2"},
    "missing fields": {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe"},
    "absurd fields": {"architectures": ["Qwen3ForCausalLM"], "hidden_size": -4, "num_hidden_layers": 10**12},
    "a field of another kind": {"architectures": "Qwen3ForCausalLM"},
}


@pytest.mark.parametrize("what", CONFIGS)
def test_a_bad_config_is_a_usage_error(run: Run, project: Path, what: str) -> None:
    """One line that names the file and the field."""
    (project / "config.json").write_text(json.dumps(CONFIGS[what]))
    result = run("plan", "bf16", "--model", "config.json")
    assert (result.status, result.out) == (2, "")
    assert result.err.startswith("precc: error: config.json")
    assert result.err.count("\n") == 1
    assert is_clear(result)


@pytest.mark.parametrize("content", [b"", b"\x00" * 100, b"\xff" * 8, (10**15).to_bytes(8, "little") + b"{}"])
def test_a_truncated_checkpoint_is_a_usage_error(run: Run, project: Path, content: bytes) -> None:
    """A header that promises more than the file holds, or is none."""
    config = json.dumps({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"})
    (project / "checkpoint").mkdir()
    (project / "checkpoint/config.json").write_text(config)
    (project / "checkpoint/model.safetensors").write_bytes(content)
    result = run("plan", "bf16", "--model", "checkpoint")
    assert (result.status, result.out) == (2, "")
    assert result.err.count("\n") == 1
    assert is_clear(result)


def test_an_unknown_model_is_told_with_the_nearest_name(run: Run) -> None:
    """And where the known ones are listed."""
    result = run("plan", "bf16", "--model", "qwen3-30b-a3")
    assert result.status == 2
    assert "`qwen3-30b-a3b`" in result.err
    assert "`precc models`" in result.err
