"""Sources in a folder, read and imported."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from precc.graph.catalogue import find_model
from precc.graph.model import ModelGraph
from precc.importing.detection import find_reader
from precc.importing.importing import Imported, import_policy
from precc.importing.reading import Reading
from precc.importing.sources import read_source

SAMPLES = Path(__file__).parents[1] / "data" / "importing"


def model(name: str) -> ModelGraph:
    """A model of the catalogue."""
    found = find_model(name)
    assert found is not None
    return found


def written(folder: Path, name: str, content: Any) -> str:
    """A file with some text, or with some JSON."""
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def reading(path: str | Path, graph: ModelGraph) -> Reading:
    """What the source's reader answers."""
    source = read_source(str(path))
    return find_reader(source).read(source, graph)


def imported(path: str | Path, graph: ModelGraph) -> Imported:
    """The policy of a source, compared with what its reader answers."""
    return import_policy(read_source(str(path)), graph, "imported")


def rules(path: str | Path, graph: ModelGraph) -> list[str]:
    """The lines of the policy that decide."""
    lines = imported(path, graph).text.splitlines()
    return [line for line in lines if line and not line.startswith(("#", "policy"))]


def counts(found: Reading) -> Counter[str]:
    """How many stored tensors get each decision."""
    counted: Counter[str] = Counter()
    for tensor, decision in found.decisions:
        counted[str(decision)] += tensor.count
    return counted


def decisions(found: Reading) -> dict[str, str]:
    """The decision of each module, each expert's for itself."""
    return {name: str(decision) for tensor, decision in found.decisions if tensor.is_gemm for name in tensor.modules()}


def messages(found: Imported) -> list[str]:
    """The findings, with their codes."""
    return [f"{finding.code} {finding.message}" for finding in found.findings]
