"""From a path to a `Source`: the files that some tool could have written, read once and with limits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from precc.diagnostics import Diagnostic, error
from precc.graph.shards import INDEX
from precc.importing.reading import Document, Source, Unimportable

CODE = "P901"

MAX_BYTES = 64 * 2**20
"""The map of a mixed checkpoint with thousands of experts is some megabytes; nothing that people write is larger."""

NEVER = frozenset({INDEX, "tokenizer.json", "tokenizer_config.json", "vocab.json"})
"""Files of a checkpoint folder that hold no policy; the first is an index of 45,000 names."""

SUFFIXES = (".json", ".yaml", ".yml", ".args", ".sh", ".txt", ".py")


def read_source(path: str) -> Source:
    """The source that a path names: a file, or the files of a folder (not of folders below). Raises Unimportable."""
    where = Path(path)
    if where.is_dir():
        found = tuple(_document(file) for file in sorted(where.iterdir()) if _is_candidate(file))
        return Source(path, tuple(document for document in found if document is not None), is_folder=True)
    document = _document(where, strict=True)
    return Source(path, () if document is None else (document,))


def _is_candidate(file: Path) -> bool:
    return file.suffix in SUFFIXES and file.name not in NEVER and file.is_file() and file.stat().st_size <= MAX_BYTES


def _document(file: Path, strict: bool = False) -> Document | None:
    """One file; where it was not named itself, one that is no text or no JSON is passed over."""
    try:
        text = _text(file)
        return Document(str(file), file.name, text, _data(file, text))
    except _Unreadable as problem:
        if strict or file.name in ("config.json", "hf_quant_config.json"):
            raise Unimportable([_unreadable(file, str(problem))]) from None
        return None


class _Unreadable(Exception):
    """Why a file cannot be read, without its name."""


def _text(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as problem:
        raise _Unreadable(f"cannot be read: {problem.strerror or problem}") from None
    if len(content) > MAX_BYTES:
        raise _Unreadable(f"is larger than {MAX_BYTES:,} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _Unreadable("is no text in UTF-8") from None


def _data(file: Path, text: str) -> Any:
    parse = _PARSERS.get(file.suffix)
    if parse is None:
        return None
    try:
        return parse(text)
    except RecursionError:
        raise _Unreadable("is nested too deep") from None
    except ValueError as problem:
        raise _Unreadable(f"is no valid {file.suffix[1:].upper()}: {' '.join(str(problem).split())[:120]}") from None


def _json(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_once)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys are different: of two that are the same, tools take either."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError(f"`{next(_repeated(pairs))}` stands twice in one object")
    return found


def _repeated(pairs: list[tuple[str, Any]]) -> Iterator[str]:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            yield key
        seen.add(key)


def _yaml(text: str) -> Any:
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as problem:
        raise ValueError(problem) from None


_PARSERS: dict[str, Callable[[str], Any]] = {".json": _json, ".yaml": _yaml, ".yml": _yaml}


def _unreadable(file: Path, problem: str) -> Diagnostic:
    return error(CODE, f"{file} {problem}", help="name a file that another tool wrote, or the folder of a checkpoint")
