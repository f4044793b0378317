"""HTML built as values: text is escaped where it enters, so no caller can forget it."""

from __future__ import annotations

from html import escape
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
        f' {name.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    if tag in _VOID:
        return Html(f"<{tag}{shown}>")
    return Html(f"<{tag}{shown}>{joined(*children)}</{tag}>")


def joined(*children: Child) -> Html:
    """These are children one after the other."""
    return Html("".join(_shown(child) for child in children if child is not None))


def _shown(child: Child) -> str:
    return child if isinstance(child, Html) else escape(str(child))
