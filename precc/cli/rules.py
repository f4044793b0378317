"""`precc rule`: the page of a diagnostic."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from precc.cli.arguments import ArgumentParser
from precc.cli.pages import CORE, Page, pages, unknown
from precc.cli.terminal import print_json, print_table

DESCRIPTION = "Show the page of a diagnostic: what it finds, why it matters, what to write instead."
EXAMPLES = """\
  precc rule            all codes
  precc rule P303       one page

JSON: {code, name, severity, title, text, sections: [{target, name, text}]}, or a list of
{code, name, severity, title} without a code."""


def configure(parser: ArgumentParser) -> None:
    """The arguments of `rule`."""
    parser.add_argument("code", nargs="?", metavar="CODE", help="such as P101 (default: list all codes)")
    parser.add_output_format()


def run(options: Namespace) -> int:
    """This prints a page, or the list of codes."""
    if options.code is None:
        return _list(options)
    found = pages({options.code.upper()})
    if not found:
        raise unknown(options.code, pages())
    page = next(iter(found.values()))
    if options.output_format == "json":
        print_json(_to_json(page))
    else:
        print(_text(page))
    return 0


def _list(options: Namespace) -> int:
    heads = [found[0] for found in pages().values()]
    if options.output_format == "json":
        print_json([_head(page) for page in heads])
    else:
        print_table(("code", "severity", "about"), [(p.code, p.severity.value, p.title) for p in heads])
    return 0


def _head(page: Page) -> dict[str, Any]:
    return {"code": page.code, "name": page.name, "severity": page.severity.value, "title": page.title}


def _to_json(found: list[Page]) -> dict[str, Any]:
    sections = [{"target": page.origin, "name": page.name, "text": page.text} for page in _sections(found)]
    text = found[0].text if found[0].origin == CORE else ""
    return {**_head(found[0]), "text": text, "sections": sections}


def _sections(found: list[Page]) -> list[Page]:
    return [page for page in found if page.origin != CORE]


def _text(found: list[Page]) -> str:
    head = f"{found[0].code} {found[0].name} ({found[0].severity.value})"
    parts = [head, *(page.text for page in found if page.origin == CORE)]
    parts += [f"## {page.origin}: {page.name}\n\n{page.text}" for page in _sections(found)]
    return "\n\n".join(parts)
