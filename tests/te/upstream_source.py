"""Single methods of TransformerEngine's classes, compiled from the installed source: the package wants CUDA to load."""

from __future__ import annotations

import ast
import importlib.metadata
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def method_of(kind: str, path: str, name: str, known: Mapping[str, Any]) -> Callable[..., Any]:
    """A method of a class in a file below `transformer_engine/pytorch`; `known` are the names that it looks up."""
    root = importlib.metadata.distribution("transformer-engine").locate_file("transformer_engine")
    source = Path(str(root)) / "pytorch" / path
    classes = {node.name: node for node in ast.parse(source.read_text()).body if isinstance(node, ast.ClassDef)}
    method = next(each for each in classes[kind].body if getattr(each, "name", "") == name)
    method.decorator_list = []  # type: ignore[attr-defined]
    space = dict(known)
    whole = ast.Module([ast.parse("from __future__ import annotations").body[0], method], [])
    exec(compile(whole, str(source), "exec"), space)
    made: Callable[..., Any] = space[name]
    return made
