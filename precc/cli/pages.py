"""The pages of the codes: each is the docstring of a rule's module, an engine's rules add sections of their own."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from precc.cli.errors import UsageError

if TYPE_CHECKING:
    from precc.diagnostics import Severity
    from precc.diagnostics.sarif import Rule

CORE = "precc"


class Page(NamedTuple):
    """One page, or one section of it: `origin` is `precc` or the target whose engine it is about."""

    code: str
    name: str
    severity: Severity
    text: str
    origin: str

    @property
    def title(self) -> str:
        """The first line, without its mark as a heading."""
        return self.text.splitlines()[0].lstrip("# ") if self.text else ""


def pages(codes: Collection[str] | None = None) -> dict[str, list[Page]]:
    """Every page by its code, sections of engines behind the page of precc; or those of some codes only."""
    found: dict[str, list[Page]] = {}
    for origin, package in _packages():
        for module in _modules(package, codes):
            page = _read(f"{package}.{module}", origin)
            found.setdefault(page.code, []).append(page)
    return dict(sorted(found.items()))


def _packages() -> Iterator[tuple[str, str]]:
    from precc.backend import available, find_backend
    from precc.rules import STAGES

    yield from ((CORE, f"precc.rules.{stage}") for stage in STAGES)
    for name in sorted(available()):
        yield name, find_backend(name).rules


def _modules(package: str, codes: Collection[str] | None) -> Iterator[str]:
    for code, module in _files(import_module(package).__path__):
        if codes is None or code in codes:
            yield module


def _files(folders: Iterable[str]) -> list[tuple[str, str]]:
    """Codes and module names, from the names of files: `p101_unknown_name.py`."""
    names = {name[:-3] for folder in folders for name in os.listdir(folder) if name.endswith(".py")}
    return sorted((name[:4].upper(), name) for name in names if name[:1] == "p" and name[1:4].isdigit())


def _read(module: str, origin: str) -> Page:
    rule = import_module(module)
    return Page(rule.CODE, rule.NAME, rule.SEVERITY, (rule.__doc__ or "").strip(), origin)


def core_codes() -> set[str]:
    """The codes of precc itself, without loading a rule."""
    import precc.rules

    found: set[str] = set()
    for root in precc.rules.__path__:
        for stage in precc.rules.STAGES:
            folder = os.path.join(root, stage)
            if os.path.isdir(folder):
                found.update(code for code, _ in _files([folder]))
    return found


def check_codes(words: Iterable[str], option: str) -> tuple[str, ...]:
    """Codes, or the beginnings of some (`P1`, `P70`), in capitals. An unknown one is a mistake."""
    wanted = tuple(part.strip().upper() for word in words for part in word.split(",") if part.strip())
    known = core_codes()
    for word in wanted:
        if not any(code.startswith(word) for code in known) and not any(code.startswith(word) for code in pages()):
            raise unknown(word, known, f"{option}: ")
    return wanted


def unknown(code: str, known: Collection[str], where: str = "") -> UsageError:
    """The mistake of naming a code that does not exist."""
    from difflib import get_close_matches

    near = get_close_matches(code.upper(), sorted(known), n=3)
    hint = f"near it: {', '.join(near)}" if near else "`precc rule` lists all codes"
    return UsageError(f"{where}there is no code `{code}`", hint)


def sarif_rules(codes: Collection[str]) -> dict[str, Rule]:
    """What SARIF tells of some codes."""
    from precc.diagnostics.sarif import Rule

    return {
        code: Rule(found[0].name, found[0].severity, found[0].title, "\n\n".join(page.text for page in found))
        for code, found in pages(codes).items()
    }
