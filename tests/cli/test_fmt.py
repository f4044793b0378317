"""`precc fmt`: writes, checks, shows, and never breaks a file."""

from __future__ import annotations

from pathlib import Path

from cli.commands import Run, Write

UGLY = "default :  bf16\nexperts.* :nvfp4   per_token # why\n"
NEAT = "default: bf16\nexperts.*: nvfp4 per_token  # why\n"


def test_a_policy_is_formatted_in_place_and_a_second_time_not(run: Run, project: Path, policy: Write) -> None:
    """The canonical form, with the comment kept."""
    name = policy(UGLY)
    assert run("fmt", name) == (0, "formatted policy.prec\n", "1 formatted\n")
    assert (project / name).read_text() == NEAT
    assert run("fmt", name) == (0, "", "1 unchanged\n")


def test_check_writes_nothing_and_tells_by_its_status(run: Run, project: Path, policy: Write) -> None:
    """For CI."""
    name = policy(UGLY)
    assert run("fmt", "--check", name) == (1, "would format policy.prec\n", "1 would be formatted\n")
    assert (project / name).read_text() == UGLY
    policy(NEAT)
    assert run("fmt", "--check", name).status == 0


def test_diff_shows_what_would_change(run: Run, project: Path, policy: Write) -> None:
    """A unified diff that `patch` understands, and nothing written."""
    name = policy("default :  bf16")
    result = run("fmt", "--diff", name)
    assert result.status == 1
    assert "-default :  bf16\n\\ No newline at end of file\n+default: bf16\n" in result.out
    assert (project / name).read_text() == "default :  bf16"


def test_a_diff_splits_lines_at_newlines_only(run: Run, policy: Write) -> None:
    """A form feed, or any other separator, stands inside a line for `patch`."""
    name = policy("default: bf16  # a\x0cb\u2028c\x85d\nlm_head :bf16\n")
    result = run("fmt", "--diff", name)
    assert result.out.split("\n") == [
        "--- policy.prec",
        "+++ policy.prec (formatted)",
        "@@ -1,2 +1,2 @@",
        " default: bf16  # a\x0cb\u2028c\x85d",
        "-lm_head :bf16",
        "+lm_head: bf16",
        "",
    ]


def test_a_file_with_errors_is_left_as_it_is_and_the_others_are_formatted(
    run: Run, project: Path, policy: Write
) -> None:
    """One bad file must not keep the rest of a commit from being formatted."""
    bad, good = policy("default: : bf16\n", "bad.prec"), policy(UGLY, "good.prec")
    result = run("fmt", bad, good)
    assert result.status == 1
    assert "error[P001]" in result.err
    assert (project / bad).read_text() == "default: : bf16\n"
    assert (project / good).read_text() == NEAT


def test_a_binary_file_is_reported_and_kept(run: Run, project: Path) -> None:
    """Whatever a folder holds under this name."""
    (project / "x.prec").write_bytes(b"\x00\x01\xff")
    result = run("fmt", "x.prec")
    assert result.status == 1
    assert "error[P012]" in result.err
    assert (project / "x.prec").read_bytes() == b"\x00\x01\xff"


def test_folders_are_formatted_whole(run: Run, project: Path, policy: Write) -> None:
    """Without arguments: this folder."""
    policy(UGLY, "a/one.prec")
    policy(UGLY, "two.prec")
    assert run("fmt").err == "2 formatted\n"
    assert (project / "a/one.prec").read_text() == (project / "two.prec").read_text() == NEAT
