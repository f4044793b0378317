"""HTML built as values: text is escaped where it enters, so no caller can forget it."""

from __future__ import annotations

from functools import cache
from typing import TypeAlias


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


Child: TypeAlias = str | int | None
"""Markup, text to be escaped, a number, or nothing."""

_VOID = frozenset({"meta", "br"})


def element(tag: str, *children: Child, **attributes: str | int | None) -> Html:
    """This is one element. `class_` is written `class`, `data_x` is `data-x`, and None left away."""
    shown = "".join(
        f' {_attribute(name)}="{_escaped(str(value))}"' for name, value in attributes.items() if value is not None
    )
    if tag in _VOID:
        return Html(f"<{tag}{shown}>")
    return Html(f"<{tag}{shown}>{joined(*children)}</{tag}>")


@cache
def _attribute(name: str) -> str:
    return name.rstrip("_").replace("_", "-")


def joined(*children: Child) -> Html:
    """These are children one after the other."""
    return Html("".join(_shown(child) for child in children if child is not None))


def _shown(child: Child) -> str:
    return child if isinstance(child, Html) else _escaped(str(child))


def _escaped(text: str) -> str:
    """The same as `html.escape`, whose module brings the names of two thousand characters along."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace('"', "&quot;").replace("'", "&#x27;")
