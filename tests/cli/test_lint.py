"""`precc lint`: by itself, on models, for machines, with selections and fixes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from cli.commands import Run, Write, at_a_terminal, precc

QWEN, DEEPSEEK = "qwen3-30b-a3b", "deepseek-v3"


def test_a_clean_policy_has_no_findings(run: Run, policy: Write) -> None:
    """Status 0 and one line."""
    assert run("lint", policy("default: mxfp8\n")) == (
        0,
        "no findings in 1 file; nothing was checked on a model (--model)\n",
        "",
    )


def test_an_error_is_pictured_and_fails_the_lint(run: Run, policy: Write) -> None:
    """The whole output of the commonest mistake."""
    result = run("lint", policy("default: mxfp9\n"))
    assert (result.status, result.err) == (1, "")
    assert result.out.startswith("error[P002]: ")
    assert "\n1 | default: mxfp9\n  |          ^^^^^\n" in result.out
    assert result.out.endswith("\n1 error in 1 file\n")


def test_a_warning_fails_the_lint_and_information_does_not(run: Run, policy: Write) -> None:
    """`kv_b_proj` is no part of Qwen3: P102 is a warning. A policy that decides everything is merely informed."""
    warned = run("lint", policy("kv_b_proj: bf16\nexperts.*: nvfp4 per_token\n"), "--model", QWEN)
    assert warned.status == 1
    assert "warning[P102]" in warned.out
    informed = run("lint", policy("experts.*: nvfp4 per_token\n"), "--model", QWEN)
    assert "info[" in informed.out
    assert "warning[" not in informed.out
    assert informed.status == 0


def test_exit_zero_reports_and_succeeds(run: Run, policy: Write) -> None:
    """For a job that only annotates."""
    result = run("lint", policy("default: mxfp9\n"), "--exit-zero")
    assert result.status == 0
    assert "error[P002]" in result.out


def test_the_misspelt_name_is_an_error_with_the_name_that_was_meant(run: Run, policy: Write) -> None:
    """`kv_bproj` silently matching nothing is how one side ends up in another precision."""
    result = run("lint", policy("kv_bproj: bf16\n"), "--model", DEEPSEEK)
    assert result.status == 1
    assert "error[P101]" in result.out
    assert "`kv_b_proj`" in result.out
    assert "= model: deepseek-v3" in result.out


def test_a_finding_on_several_models_is_shown_once(run: Run, policy: Write) -> None:
    """People read it once with the models named; machines get one for each."""
    name = policy("no_such_name: bf16\n")
    models = ("--model", QWEN, "--model", DEEPSEEK)
    text = run("lint", name, *models).out
    assert text.count("error[P101]") == 1
    assert f"= model: {QWEN}, {DEEPSEEK}" in text
    found = [
        item["model"] for item in run("lint", name, *models, "--output-format", "json").json if item["code"] == "P101"
    ]
    assert found == [QWEN, DEEPSEEK]


def test_what_needs_no_model_is_found_once_without_one(run: Run, policy: Write) -> None:
    """A finding of the file alone does not repeat for each model."""
    name = policy("default: mxfp8\nre:.*mlp.*: bf16\n")
    alone = run("lint", name, "--output-format", "json").json
    both = run("lint", name, "--model", QWEN, "--model", DEEPSEEK, "--output-format", "json").json
    assert alone
    assert [item for item in both if item["model"] is None] == alone


def test_an_ignore_comment_is_unused_only_if_it_is_so_on_every_model(run: Run, policy: Write) -> None:
    """P102 exists on Qwen3 and not on DeepSeek-V3, which has `kv_b_proj`."""
    name = policy("kv_b_proj: bf16  # precc: ignore[P102] other models have none\nexperts.*: mxfp8\n")
    assert "P017" in run("lint", name, "--model", DEEPSEEK).out
    for models in ((QWEN,), (QWEN, DEEPSEEK), (DEEPSEEK, QWEN)):
        result = run("lint", name, *(word for model in models for word in ("--model", model)))
        assert "P017" not in result.out
        assert "warning[P102]" not in result.out


def test_an_ignore_comment_is_not_called_unused_where_some_targets_had_no_say(run: Run, policy: Write) -> None:
    """With `--target` an engine's rule that it silences may simply not have run."""
    name = policy("kv_b_proj: bf16  # precc: ignore[P702]\nexperts.*: mxfp8\n")
    assert "P017" in run("lint", name, "--model", DEEPSEEK).out
    assert "P017" not in run("lint", name, "--model", DEEPSEEK, "--target", "converter").out


def test_folders_are_searched_and_hidden_ones_left_out(run: Run, policy: Write) -> None:
    """In the order of their names; a file that is named twice is read once."""
    for name in ("b/two.prec", "a.prec", ".cache/no.prec", "b/notes.txt"):
        policy("default: mxfp9\n", name)
    result = run("lint", ".", "a.prec", "--output-format", "concise")
    assert [line.split(":")[0] for line in result.out.splitlines()] == ["a.prec", os.path.join("b", "two.prec")]
    assert run("lint", "--output-format", "concise").out == result.out


def test_a_ready_policy_is_linted_by_its_name(run: Run) -> None:
    """`nvfp4_rl` where there is no file of that name."""
    assert run("lint", "nvfp4_rl").status == 0


def test_json_has_the_documented_keys(run: Run, policy: Write) -> None:
    """The exact list, in order."""
    (found,) = run("lint", policy("default: mxfp9\n"), "--output-format", "json").json
    keys = "code severity message model file line column end_line end_column labels help url fix"
    assert list(found) == keys.split()
    assert (found["file"], found["line"], found["column"]) == ("policy.prec", 1, 10)


def test_json_of_a_clean_lint_is_an_empty_list(run: Run, policy: Write) -> None:
    """And nothing else on either stream."""
    assert run("lint", policy("default: mxfp8\n"), "--output-format", "json") == (0, "[]\n", "")


def test_each_machine_format_is_nothing_but_itself(run: Run, policy: Write) -> None:
    """No summary line gets between a parser and its input."""
    name = policy("default: mxfp9\n")
    assert run("lint", name, "--output-format", "concise").out.startswith("policy.prec:1:10: P002 error ")
    assert run("lint", name, "--output-format", "github").out.startswith("::error title=precc P002,file=policy.prec,")
    log = run("lint", name, "--output-format", "sarif").json
    (rule,) = log["runs"][0]["tool"]["driver"]["rules"]
    assert (rule["id"], rule["name"]) == ("P002", "UnknownFormat")
    assert rule["help"]["markdown"]


def test_select_and_ignore_take_codes_and_beginnings_of_codes(run: Run, policy: Write) -> None:
    """`P1` is the family of names; selected ones that are ignored are left out."""
    name = policy("no_such_name: bf16\nexperts.*: nvfp4\n")

    def codes(*options: str) -> set[str]:
        return {item["code"] for item in run("lint", name, "-m", QWEN, "--output-format", "json", *options).json}

    everything = codes()
    assert "P101" in everything
    assert len(everything) > 1
    assert codes("--select", "P1") == {"P101"}
    assert codes("--select", "p101, P8") == {"P101"}
    assert codes("--ignore", "P101") == everything - {"P101"}
    assert codes("--select", "P1", "--ignore", "P101") == set()


def test_an_unknown_code_is_a_usage_error(run: Run, policy: Write) -> None:
    """A misspelt code would select nothing, for ever."""
    result = run("lint", policy("default: bf16\n"), "--select", "P999")
    assert (result.status, result.out) == (2, "")
    assert "there is no code `P999`" in result.err


def test_a_layout_option_takes_part(run: Run, policy: Write) -> None:
    """768 / 8 = 96 is no multiple of 128: refused under this rollout layout, fine without it."""
    name = policy("@routed_experts: fp8_block\n")
    assert "P302" not in run("lint", name, "-m", QWEN).out
    assert "P302" in run("lint", name, "-m", QWEN, "--rollout", "tp=8").out


@pytest.mark.parametrize("words", ["tp=x", "tpp=4", "tp", "tp=4; import os", "tp=0"])
def test_a_layout_option_is_read_as_the_policys_own_line(run: Run, policy: Write, words: str) -> None:
    """The same words, the same complaints, on one line."""
    result = run("lint", policy("default: bf16\n"), "--model", QWEN, "--train", words)
    assert (result.status, result.out) == (2, "")
    assert result.err.startswith("precc: error: --train: ")
    assert result.err.count("\n") == 1


def test_a_target_that_the_policy_is_not_for_is_a_usage_error(run: Run, policy: Write) -> None:
    """And one that nobody installed, with those that are."""
    name = policy("targets: sglang, converter\n@routed_experts: mxfp8\n")
    assert run("lint", name, "-m", QWEN, "-t", "sglang").status == 0
    other = run("lint", name, "-m", QWEN, "-t", "te")
    assert other.status == 2
    assert "is for sglang, converter, not for te" in other.err
    unknown = run("lint", name, "-m", QWEN, "-t", "tensorrt")
    assert unknown.status == 2
    assert "targets: converter, miles, sglang, te" in unknown.err


def test_colors_and_escapes_stay_out_of_a_pipe(project: Path, policy: Write) -> None:
    """Also when the environment asks for a capable terminal."""
    result = precc("lint", policy("default: mxfp9\n"), cwd=project, env={"TERM": "xterm-256color"})
    assert "\x1b" not in result.out


def test_a_terminal_gets_colors_unless_it_asks_for_none(project: Path, policy: Write) -> None:
    """A real pseudo-terminal, with and without NO_COLOR."""
    name = policy("default: mxfp9\n")
    assert "\x1b[1;31merror[P002]" in at_a_terminal(project, "lint", name, env={"TERM": "xterm"})
    assert "\x1b" not in at_a_terminal(project, "lint", name, env={"TERM": "xterm", "NO_COLOR": "1"})
    assert "\x1b" not in at_a_terminal(project, "lint", name, env={"TERM": "dumb"})


def test_a_safe_fix_is_written_and_reported(run: Run, project: Path, policy: Write) -> None:
    """Only case differs: `FP8` cannot mean anything else. The comment and the mode of the file stay."""
    name = policy("kv_cache: FP8  # for now\nexperts.*: bf16\n")
    (project / name).chmod(0o640)
    before = run("lint", name, "--output-format", "json").json
    assert [item["fix"]["safe"] for item in before if item["code"] == "P002"] == [True]
    result = run("lint", name, "--fix")
    assert (project / name).read_text() == "kv_cache: fp8  # for now\nexperts.*: bf16\n"
    assert (project / name).stat().st_mode & 0o777 == 0o640
    assert "policy.prec: 1 finding fixed" in result.err
    assert "P002" not in result.out


def test_an_unsafe_fix_is_suggested_and_not_written(run: Run, project: Path, policy: Write) -> None:
    """`kv_bproj` was most likely meant to be `kv_b_proj`; that is for its author to say."""
    name = policy("kv_bproj: bf16\n")
    result = run("lint", name, "--fix", "--model", DEEPSEEK)
    assert result.status == 1
    assert (project / name).read_text() == "kv_bproj: bf16\n"
    assert result.err == ""


def test_fixes_are_repeated_until_none_is_left(run: Run, project: Path, policy: Write) -> None:
    """Several in one file; line ends stay as they are."""
    name = policy("kv_cache: FP8\r\nexperts.*: weight NVFP4, input nvfp4 PER_TOKEN\r\n")
    result = run("lint", name, "--fix")
    assert (project / name).read_bytes() == b"kv_cache: fp8\r\nexperts.*: weight nvfp4, input nvfp4 per_token\r\n"
    assert result.status == 0


def test_a_fix_through_a_link_changes_the_file_and_keeps_the_link(run: Run, project: Path, policy: Write) -> None:
    """Replacing the link by a file would cut it off from its other readers."""
    policy("kv_cache: FP8\n", "real.prec")
    (project / "link.prec").symlink_to("real.prec")
    assert run("lint", "link.prec", "--fix").status == 0
    assert (project / "link.prec").is_symlink()
    assert (project / "real.prec").read_text() == "kv_cache: fp8\n"


def test_concise_text_names_the_file_as_it_was_given(run: Run, project: Path, policy: Write) -> None:
    """Editors jump by the path that they passed."""
    path = str(project / policy("default: mxfp9\n"))
    assert run("lint", path, "--output-format", "concise").out.startswith(f"{path}:1:10: ")
    assert json.loads(run("lint", path, "--output-format", "json").out)[0]["file"] == path
