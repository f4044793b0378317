"""The written pages are current, their policies lint, their code runs, their links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from generator import policies
from generator.fences import Fence, fences

from precc.backend import find_backend, standard_targets
from precc.diagnostics import Severity
from precc.front import read_policy
from precc.graph.families import families
from precc.graph.reading import read_model
from precc.pipeline import compile_policy
from precc.source import SourceFile
from precc.syntax import format_source

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
OWN_TARGETS = "adding-a-backend.md"
"""A page whose policies are for a target that only the page has; it has a test of its own."""


def examples(language: str) -> pytest.MarkDecorator:
    """Runs a test for every fenced block of one language."""
    found = [(path, fence) for path in PAGES for fence in fences(path.read_text(encoding="utf-8"))]
    chosen = [(path, fence) for path, fence in found if fence.language == language]
    return pytest.mark.parametrize("path, fence", chosen, ids=[f"{path.stem}-{fence.start}" for path, fence in chosen])


@pytest.mark.slow
def test_the_generated_parts_are_current() -> None:
    """Every page, table and command's output is what `make docs` would write now."""
    command = [sys.executable, str(ROOT / "docs/generate.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@examples("prec")
def test_a_policy_on_a_page_is_in_canonical_form(path: Path, fence: Fence) -> None:
    """What a reader copies is what the formatter would write."""
    source = SourceFile(path.name, fence.text)
    assert format_source(source)[0] == fence.text


@examples("prec")
def test_a_policy_on_a_page_finds_what_its_fence_says(path: Path, fence: Fence, tmp_path: Path) -> None:
    """The code that it is an example of, or no error and no warning; with a model, on that model."""
    for other in fences(path.read_text(encoding="utf-8")):
        if other.file and other.language == "prec":
            (tmp_path / other.file).write_text(other.text, encoding="utf-8")
    source = SourceFile(str(tmp_path / "example.prec"), fence.text)
    policy, findings = read_policy(source)
    if "model" in fence.facts and path.name != OWN_TARGETS:
        names = policy.targets.names if policy.targets else standard_targets()
        backends = [find_backend(name) for name in names]
        findings = compile_policy(source, read_model(fence.facts["model"]), backends).findings
    found = {finding.code for finding in findings if finding.severity is not Severity.INFO}
    assert found == ({fence.facts["expect"]} if "expect" in fence.facts else set())


@examples("python")
def test_code_on_a_page_is_formatted_and_linted(path: Path, fence: Fence) -> None:
    """As the code of the repository is."""
    name = fence.file or "example.py"
    for command in (["format", "--check", "-"], ["check", "--ignore", "D,T201", "-"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(ROOT / "docs" / name)]
        done = subprocess.run(ruff, input=fence.text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{path.name}: {done.stdout}{done.stderr}"


@pytest.mark.parametrize("page", ["tutorial.md", "artifacts.md"])
def test_code_that_uses_precc_runs(page: str, tmp_path: Path) -> None:
    """In a folder with the page's files, and what its first compile wrote."""
    blocks = list(fences((ROOT / "docs" / page).read_text(encoding="utf-8")))
    for block in blocks:
        if block.file is not None:
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
    compiled = "from precc.cli import main; main('compile policy.prec --model qwen3-30b-a3b -o out'.split())"
    (code,) = [block.text for block in blocks if block.language == "python"]
    for script in (compiled, code):
        done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_every_link_leads_somewhere(path: Path) -> None:
    """Files that exist, and headings that the page has."""
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", path.read_text(encoding="utf-8")):
        name, _, heading = target.partition("#")
        page = (path.parent / name).resolve() if name else path
        assert page.exists(), f"{path.name}: {target}"
        if heading:
            assert heading in anchors(page), f"{path.name}: {target}"


def anchors(page: Path) -> set[str]:
    """The headings of a page, as links name them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_each_model_of_the_table_is_of_another_family() -> None:
    """In the table of what compiles for what; the page of verification has all families."""
    shown = [read_model(name).family for name in policies.MODELS.values()]
    assert len({*shown} | {"deepseek_v3"}) == len(shown) - 1  # Kimi-K2 is one of DeepSeek-V3's
    assert {*shown} < {family.name for family in families()}


def test_no_page_names_a_place_that_is_not_the_readers() -> None:
    """No absolute path of a machine, and no host but placeholders and well-known ones."""
    hosts = {"example.org", "pre-commit.com"}
    for path in [*PAGES, *sorted((ROOT / "docs/diagnostics").glob("*.md"))]:
        text = path.read_text(encoding="utf-8")
        assert set(re.findall(r"https?://([\w.-]+)", text)) <= hosts, path.name
        assert not re.search(r"(?<![\w.$])/(?:home|root|tmp|work|usr|Users)/", text), path.name
