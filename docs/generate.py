"""Writes what the documentation takes from the program: pages, tables, and the output of every command it shows.

    python docs/generate.py            write
    python docs/generate.py --check    say what is stale; status 1 if anything is
    python docs/generate.py language   only pages whose path holds that word

The fences of a page are a small world of their own: see `generator/fences.py`.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path

from generator import diagnostics, markers
from generator.console import CommandFailed, run_page

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent


def main(arguments: list[str]) -> int:
    """This writes or checks every page, and says which ones were not current."""
    parser = ArgumentParser(prog="generate.py", description="Write the generated parts of the documentation.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a page is stale")
    parser.add_argument("pages", nargs="*", metavar="WORD", help="only pages whose path holds one of these")
    options = parser.parse_args(arguments)
    try:
        stale = [path for path, text in wanted(options.pages) if not _is_current(path, text, options.check)]
    except CommandFailed as problem:
        say(str(problem))
        return 1
    for path in stale:
        say(f"{path.relative_to(ROOT)}: {'stale; run make docs' if options.check else 'written'}")
    say(f"{len(stale)} page{'' if len(stale) == 1 else 's'} {'stale' if options.check else 'changed'}")
    return int(options.check and bool(stale))


def say(line: str) -> None:
    """One line for whoever runs this."""
    sys.stdout.write(f"{line}\n")


def wanted(words: list[str]) -> Iterator[tuple[Path, str | None]]:
    """Every page with the text that it should have; None for one that should not be there."""
    for path, text in diagnostics.pages(DOCS / "diagnostics"):
        if _named(path, words):
            yield path, text
    for path in written_pages():
        if _named(path, words):
            yield path, run_page(markers.fill(path.read_text(encoding="utf-8")), path, ROOT)


def written_pages() -> list[Path]:
    """The pages that people write, with generated parts in them."""
    return [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]


def _named(path: Path, words: list[str]) -> bool:
    return not words or any(word in str(path.relative_to(ROOT)) for word in words)


def _is_current(path: Path, text: str | None, check: bool) -> bool:
    found = path.read_text(encoding="utf-8") if path.exists() else None
    if found != text and not check:
        _write(path, text)
    return found == text


def _write(path: Path, text: str | None) -> None:
    if text is None:
        path.unlink()
    else:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
