"""Corruptions of emitted artifacts: one table a target, name → what makes every variant of it."""

from __future__ import annotations

from .converter import MUTATIONS as CONVERTER
from .edits import Artifacts, Mutation
from .sglang import MUTATIONS as SGLANG
from .te import MUTATIONS as TE

MUTATIONS: dict[str, dict[str, Mutation]] = {"te": TE, "sglang": SGLANG, "converter": CONVERTER}

__all__ = ["MUTATIONS", "Artifacts", "Mutation"]
