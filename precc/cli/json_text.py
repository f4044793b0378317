"""JSON that people read and compare: objects opened line by line, what is small on one line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any


def json_text(value: dict[str, Any]) -> str:
    """An object with a line a key; lists of numbers and words stand on one, lists of objects have one an element."""
    return "".join(_text(value, 0)) + "\n"


def _text(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, dict) and value:
        yield from _block("{}", depth, ((f"{json.dumps(key)}: ", item) for key, item in value.items()), open=True)
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        yield from _block("[]", depth, (("", item) for item in value), open=False)
    else:
        yield json.dumps(value, ensure_ascii=False)


def _block(brackets: str, depth: int, items: Iterator[tuple[str, Any]], open: bool) -> Iterator[str]:
    before = brackets[0]
    for key, item in items:
        yield f"{before}\n{' ' * (depth + 1)}{key}"
        before = ","
        yield from _text(item, depth + 1) if open else [json.dumps(item, ensure_ascii=False)]
    yield f"\n{' ' * depth}{brackets[1]}"
