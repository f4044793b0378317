"""ModelOpt's own YAML: `$import` and where it finds a snippet, `e4m3` for a pair of bits, lists and mappings merged.

A snippet is looked for in the folders above the file that names it, and in an installed `modelopt_recipes`, whose
files need no ModelOpt to be read. Nothing outside these folders is opened.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from precc.diagnostics import error
from precc.importing.reading import Document, Unimportable

SEEMS = "P901"
IMPORT = "$import"

_BITS = re.compile(r"[Ee](\d+)[Mm](\d+)\Z")
_BIT_KEYS = ("num_bits", "scale_bits")


def resolved(document: Document) -> Any:
    """What a document says with its imports put in. Raises Unimportable."""
    folders = (*Path(document.path).resolve().parents, *_installed())
    return _Snippets(document.path, folders).resolve(document.data, ())


def _installed() -> Iterator[Path]:
    found = find_spec("modelopt_recipes")
    for folder in (found.submodule_search_locations or ()) if found is not None else ():
        yield Path(folder)


class _Snippets:
    def __init__(self, path: str, folders: tuple[Path, ...]) -> None:
        self._path = path
        self._folders = folders

    def resolve(self, data: Any, chain: tuple[str, ...]) -> Any:
        """A file's content: `imports` name snippets, `$import` puts them in."""
        if not isinstance(data, dict) or not isinstance(data.get("imports", {}), dict):
            raise self._refused("it is no mapping with `imports` that is one")
        named = {str(name): self._snippet(str(where), chain) for name, where in data.get("imports", {}).items()}
        return self._put_in({key: said for key, said in data.items() if key != "imports"}, named)

    def _snippet(self, where: str, chain: tuple[str, ...]) -> Any:
        if where in chain:
            raise self._refused(f"`{where}` imports itself")
        parts = _documents(self._file(where), self._refused)
        if len(parts) == 2 and isinstance(parts[1], list):
            imports = self.resolve({**parts[0], "": parts[1]}, (*chain, where))
            return imports[""]
        merged = parts[0] if len(parts) == 1 else {**parts[0], **(parts[1] or {})}
        return merged if isinstance(merged, list) else self.resolve(merged, (*chain, where))

    def _file(self, where: str) -> Path:
        names = (where,) if where.endswith((".yml", ".yaml")) else (f"{where}.yml", f"{where}.yaml")
        for folder in self._folders:
            for name in names:
                found = (folder / name).resolve()
                if found.is_relative_to(folder) and found.is_file():
                    return found
        help = "import it beside the folder `configs`, or install nvidia-modelopt, which brings its snippets"
        raise self._refused(f"the snippet `{where}` is not here", help)

    def _put_in(self, data: Any, named: dict[str, Any]) -> Any:
        if isinstance(data, list):
            return [part for entry in data for part in self._spliced(entry, named)]
        if not isinstance(data, dict):
            return data
        merged: dict[Any, Any] = {}
        for name in _listed(data.get(IMPORT)):
            snippet = self._named(name, named)
            if not isinstance(snippet, dict):
                raise self._refused(f"`{IMPORT}: {name}` stands where a mapping must, and is none")
            merged |= snippet
        merged |= {key: said for key, said in data.items() if key != IMPORT}
        return {key: _bits(key, self._put_in(said, named)) for key, said in merged.items()}

    def _spliced(self, entry: Any, named: dict[str, Any]) -> list[Any]:
        """An entry of a list; an import alone stands for all entries of its snippet."""
        if isinstance(entry, dict) and set(entry) == {IMPORT} and isinstance(entry[IMPORT], str):
            snippet = self._named(entry[IMPORT], named)
            return list(snippet) if isinstance(snippet, list) else [snippet]
        return [self._put_in(entry, named)]

    def _named(self, name: str, named: dict[str, Any]) -> Any:
        if name not in named:
            raise self._refused(f"`{IMPORT}: {name}` is not among its `imports`")
        return named[name]

    def _refused(self, problem: str, help: str | None = None) -> Unimportable:
        return Unimportable([error(SEEMS, f"{self._path}: {problem}", help=help)])


def _documents(file: Path, refused: Any) -> list[Any]:
    """The one or two documents of a snippet."""
    import yaml

    try:
        found = list(yaml.safe_load_all(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as problem:
        raise refused(f"the snippet {file.name} cannot be read: {' '.join(str(problem).split())[:120]}") from None
    if len(found) not in (1, 2) or not isinstance(found[0], (dict, list)):
        raise refused(f"the snippet {file.name} is no mapping and no list")
    return found


def _listed(said: Any) -> list[str]:
    return [] if said is None else [str(name) for name in (said if isinstance(said, list) else [said])]


def _bits(key: Any, said: Any) -> Any:
    """`e4m3` as the pair that JSON has for it."""
    found = _BITS.match(said) if key in _BIT_KEYS and isinstance(said, str) else None
    return [int(found[1]), int(found[2])] if found is not None else said
