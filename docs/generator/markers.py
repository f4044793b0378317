"""Generated parts inside pages that people write, between `<!-- generated: NAME -->` and `<!-- end -->`."""

from __future__ import annotations

import re
from collections.abc import Callable

from generator import policies, stored, tables, verification

MARKED = re.compile(r"(<!-- generated: (?P<name>[^\n]+?) -->\n).*?(<!-- end -->)", re.DOTALL)

PARTS: dict[str, Callable[[], str]] = {
    "formats": tables.formats,
    "roles": tables.roles,
    "layouts": tables.layouts,
    "verbs": tables.verbs,
    "families": tables.families,
    "targets": tables.targets,
    "policies": policies.ready,
    "matrix": policies.matrix,
    "refusals": policies.refusals,
    "versions": verification.versions,
    "stored": stored.stored,
}


def fill(page: str) -> str:
    """The page with every generated part as it should be."""
    return MARKED.sub(lambda match: f"{match[1]}\n{_part(match['name'])}\n{match[3]}", page)


def _part(name: str) -> str:
    verb = name.removeprefix("options ")
    return (tables.options(verb) if verb != name else PARTS[name]()).rstrip("\n") + "\n"
