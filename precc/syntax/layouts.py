"""This module lowers `train:` and `rollout:` lines, which hold `key=value` settings."""

from __future__ import annotations

import re
from typing import Literal

from precc.syntax import ast
from precc.syntax.findings import Findings, listed, nearest, suggest
from precc.syntax.options import is_whole
from precc.syntax.tree import Tree
from precc.syntax.words import GPUS, ROLLOUT_KEYS, TRAIN_KEYS

KEYS = {"train": TRAIN_KEYS, "rollout": ROLLOUT_KEYS}
VERSIONED = ("megatron_core", "te", "sglang", "flashinfer")

_VERSION = r"[0-9][A-Za-z0-9_.]*"


def lower_layout(tree: Tree, findings: Findings) -> ast.Layout:
    """The settings that could be understood."""
    side: Literal["train", "rollout"] = "train" if tree.tokens[0].type == "TRAIN" else "rollout"
    settings: dict[str, ast.Setting] = {}
    for child in tree.trees:
        setting = _setting(child, side, findings)
        if setting is None:
            continue
        if setting.key in settings:
            message = f"`{setting.key}` is stated twice"
            first = settings[setting.key].span
            findings.report("P006", message, setting.span, help="keep one of the two", first=first)
        settings.setdefault(setting.key, setting)
    return ast.Layout(side, tuple(settings.values()), span=findings.span(tree))


def _setting(tree: Tree, side: str, findings: Findings) -> ast.Setting | None:
    key, value = tree.tokens[0], findings.span(tree.trees[0]).text
    if key.text not in KEYS[side]:
        close = nearest(key.text, KEYS[side])
        others = [other for other in KEYS if key.text in KEYS[other]]
        message = f"`{side}` has no key `{key.text}`"
        help = f"it belongs to `{others[0]}:`" if others else suggest(close, KEYS[side])
        fix = None if others else findings.respelling(key, close)
        findings.report("P004", message, key, help=help, fix=fix)
        return None
    if not _is_sound(key.text, value, tree, findings):
        return None
    return ast.Setting(key.text, value, span=findings.span(tree))


def _is_sound(key: str, value: str, tree: Tree, findings: Findings) -> bool:
    """Whether a value is of its key's kind; reported if not."""
    place = tree.trees[0]
    if key == "gpu":
        if value not in GPUS:
            close = nearest(value, GPUS)
            fix = findings.respelling(place, close)
            findings.report("P004", f"the GPU `{value}` is not modelled", place, help=suggest(close, GPUS), fix=fix)
        return value in GPUS
    if key in VERSIONED:
        is_version = re.fullmatch(_VERSION, value) is not None
        if not is_version:
            help = f"write for example `{key}=2.20`; it starts with a digit and holds no spaces"
            findings.report("P011", f"`{value}` is no version", place, help=help)
        return is_version
    if not is_whole(value):
        message = f"`{key}` is a whole number from 1 on, not `{value}`"
        findings.report("P011", message, place, help=f"write for example `{key}=4`")
    return is_whole(value)


def keys_help(side: str) -> str:
    """The help line of a layout that does not parse."""
    return f"write settings as `key=value`, separated by spaces; the keys are {listed(KEYS[side])}"
