"""This module lowers selectors; what they reach in a model is for later steps to say."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Literal

from precc.diagnostics import Edit, Fix
from precc.syntax import ast
from precc.syntax.brackets import lower_brackets
from precc.syntax.components import lower_name
from precc.syntax.findings import Findings, nearest, suggest
from precc.syntax.parser import MAX_DEPTH
from precc.syntax.tree import Token, Tree
from precc.syntax.words import RESERVED, ROLES

MAX_ANY_DEPTH = 8
"""`**` in one path. Two or three say all that a path can need; each more multiplies the ways to match it."""


def lower_selectors(tree: Tree, findings: Findings, depth: int = 0) -> tuple[ast.Selector, ...]:
    """The members of a comma list that could be understood."""
    members = (lower_selector(child, findings, depth) for child in tree.trees)
    return tuple(member for member in members if member is not None)


def lower_selector(tree: Tree, findings: Findings, depth: int = 0) -> ast.Selector | None:
    """One selector, or None when it was reported; `depth` is how many selectors it already stands in."""
    if depth > MAX_DEPTH:
        message = f"selectors stand more than {MAX_DEPTH} deep in each other"
        findings.report("P012", message, tree, help="split the rule into several")
        return None
    if tree.data == "combined":
        return _combined(tree, findings, depth)
    if tree.data == "group":
        return _group(tree, findings, depth)
    return _role(tree, findings) if tree.data == "role" else _path(tree, findings)


def _combined(tree: Tree, findings: Findings, depth: int) -> ast.Selector | None:
    """`A in B except C` is `(A in B) except C`."""
    operators = tree.tokens
    deepest = depth + len(operators)
    if deepest > MAX_DEPTH:
        return lower_selector(tree.trees[0], findings, deepest)
    operands = [lower_selector(child, findings, deepest - max(index - 1, 0)) for index, child in enumerate(tree.trees)]
    result = operands[0]
    for operator, right in zip(operators, operands[1:], strict=True):
        if result is None or right is None:
            return None
        word: Literal["in", "except"] = "in" if operator.type == "IN" else "except"
        result = ast.CombinedSelector(word, result, right, span=result.span.to(right.span))
    return result


def _group(tree: Tree, findings: Findings, depth: int) -> ast.Selector | None:
    members = lower_selectors(tree.trees[0], findings, depth + 1)
    if not members:
        return None
    return ast.GroupSelector(members, _is_optional(tree), span=findings.span(tree))


def _is_optional(tree: Tree) -> bool:
    last = tree.children[-1]
    return isinstance(last, Token) and last.type == "QUESTION"


def _role(tree: Tree, findings: Findings) -> ast.Selector | None:
    token = tree.tokens[0]
    role = token.text[1:]
    if role in ROLES:
        return ast.RoleSelector(role, _is_optional(tree), span=findings.span(tree))
    close = nearest(role, ROLES)
    message = f"there is no role `@{role}`" if role else "the name of a role is missing behind `@`"
    fix = findings.respelling(token, close, "@")
    findings.report("P009", message, token, help=suggest(close, ROLES, "@"), fix=fix)
    return None


def _path(tree: Tree, findings: Findings) -> ast.Selector | None:
    is_sound = _joined(tree, findings)
    components = [_component(child, findings) for child in tree.trees]
    known = tuple(component for component in components if component is not None)
    if not is_sound or len(known) < len(components):
        return None
    if not _starts_well(tree, known, findings) or not _reaches_well(tree, known, findings):
        return None
    return ast.PathSelector(known, _is_optional(tree), span=findings.span(tree))


def _joined(tree: Tree, findings: Findings) -> bool:
    """Whether nothing stands around the dots of a path, nor between a name and its brackets."""
    leaves = [leaf for leaf in tree.leaves() if leaf.type != "QUESTION"]
    gaps = [findings.source.span(a.end, b.start) for a, b in pairwise(leaves) if a.end < b.start]
    if not gaps:
        return True
    is_blank = all(not gap.text.strip() for gap in gaps)
    fix = Fix(tuple(Edit(gap, "") for gap in gaps), True) if is_blank else None
    message = "a path is written without spaces: none stands around a dot or before a bracket"
    findings.report("P019", message, tree, help=f"write `{''.join(leaf.text for leaf in leaves)}`", fix=fix)
    return False


def _starts_well(tree: Tree, components: tuple[ast.Component, ...], findings: Findings) -> bool:
    first = components[0]
    reserved = RESERVED.intersection(first.alternatives) if isinstance(first, ast.Name) else ()
    if not reserved:
        return True
    word = min(reserved)
    token = next(tree.leaves())
    findings.report(
        "P008",
        f"`{word}` is a word of the language and cannot start a path",
        token,
        help=f"write `**.{token.text}`: behind a dot every word is free",
        fix=findings.replacement(token, f"**.{token.text}"),
    )
    return False


def _reaches_well(tree: Tree, components: tuple[ast.Component, ...], findings: Findings) -> bool:
    """Whether the `**` of a path stand apart, and are few; reported if not."""
    depths = [isinstance(component, ast.AnyDepth) for component in components]
    if any(a and b for a, b in pairwise(depths)):
        text = re.sub(r"\*\*(\.\*\*)+", "**", findings.span(tree).text)
        message = "one `**` is enough: two next to each other mean the same"
        findings.report("P019", message, tree, help=f"write `{text}`", fix=findings.replacement(tree, text))
        return False
    if sum(depths) > MAX_ANY_DEPTH:
        help = "leave most of them out: one `**` matches any number of components"
        findings.report("P019", f"a path holds at most {MAX_ANY_DEPTH} `**`", tree, help=help)
        return False
    return True


def _component(tree: Tree, findings: Findings) -> ast.Component | None:
    word, *brackets = tree.tokens
    if not brackets:
        return lower_name(word, findings)
    if word.text == "layers":
        which = lower_brackets(brackets[0], findings)
        return ast.Layers(which, span=findings.span(tree)) if which else None
    message = f"brackets belong to `layers` alone, not to `{word.text}`"
    number = brackets[0].text[1:-1].strip()
    help = f"write `{word.text}.{number}`" if number.isdecimal() else "choose decoder layers with `layers[…]`"
    findings.report("P005", message, tree, help=help)
    return None
