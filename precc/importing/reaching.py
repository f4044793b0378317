"""What a pattern reaches beside what its words name."""

from __future__ import annotations

import re
from collections.abc import Sequence

from precc.graph.model import Tensor
from precc.importing.patterns import folded

_CLASS = re.compile(r"\\[A-Za-z]")
_LAST = re.compile(r"(\w+)\Z")
_ROUTERS = frozenset({"gate", "router"})
"""Words that are whole names in other layers, so that an entry which reaches none of these has meant them."""


def going_on(entry: str, tensors: Sequence[Tensor]) -> str:
    """The tensors that an entry reaches by a longer name than the word it ends with: `gate_proj` for `mlp.gate`.

    The entry is without the wildcard behind it. Empty where it ends otherwise (`mlp.gate.`, `mlp.gate$`), and where all
    of them have such a longer name, as for an abbreviation, unless the word is a router's.
    """
    word = _LAST.search(_CLASS.sub(" ", entry))
    if word is None:
        return ""
    longer = [t for t in tensors if word[1] not in t.path and any(part.startswith(word[1]) for part in t.path)]
    return folded(longer) if longer and (len(longer) < len(tensors) or word[1] in _ROUTERS) else ""


def by_number(entry: str, tensors: Sequence[Tensor]) -> str:
    """The experts that an entry reaches by a number that it means for a layer: expert 10 for `.*\\.10\\..*`.

    They stand in layers of which it reaches nothing else.
    """
    if "expert" in entry:
        return ""
    layers = {tensor.layer for tensor in tensors if tensor.layer is not None and tensor.experts is None}
    stray = [tensor for tensor in tensors if tensor.experts is not None and tensor.layer not in layers]
    return folded(stray) if stray and layers else ""
