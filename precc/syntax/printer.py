"""This module writes a policy in its canonical form, keeping every comment, and checks its own result.

A statement on one line is written anew. One that its author broke inside parentheses keeps its line breaks,
so that comments stay next to what they are about.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from precc.diagnostics import Diagnostic, error
from precc.records import replace
from precc.source import SourceFile
from precc.syntax import ast
from precc.syntax.lower import lower
from precc.syntax.parser import Concrete, ParsedLine, parse_tree
from precc.syntax.spacing import joined
from precc.syntax.tree import Token, Tree

INDENT = "    "


class Row(NamedTuple):
    """One line of the result. `number` is the source line that it comes from."""

    number: int
    code: str
    comment: str = ""


def format_source(source: SourceFile) -> tuple[str, tuple[Diagnostic, ...]]:
    """The canonical text; on errors the text as it is, and the findings that stand in the way."""
    concrete = parse_tree(source)
    file, findings = lower(source, concrete)
    if findings:
        return source.text, findings
    text = _assemble(_rows(source, concrete, file))
    if "\r\n" in source.text and source.text.index("\r\n") < source.text.index("\n"):
        text = text.replace("\n", "\r\n")
    return _checked(source, file, text)


def _rows(source: SourceFile, concrete: Concrete, file: ast.File) -> list[Row]:
    rows: list[Row] = []
    comments = iter(concrete.comments)
    comment = next(comments, None)
    for line, statement in zip(concrete.statements, file.statements, strict=True):
        first, last = (source.position(offset)[0] for offset in (line.tree.start, line.tree.end))
        while comment and comment.start < line.tree.start:
            rows.append(Row(source.position(comment.start)[0], _comment_text(comment)))
            comment = next(comments, None)
        own: list[Token] = []
        while comment and source.position(comment.start)[0] <= last:
            own.append(comment)
            comment = next(comments, None)
        rows.extend(_broken(source, line, own) if last > first else _on_one_line(first, line, statement, own))
    while comment:
        rows.append(Row(source.position(comment.start)[0], _comment_text(comment)))
        comment = next(comments, None)
    return rows


def _comment_text(comment: Token) -> str:
    return comment.text.rstrip()


def _on_one_line(number: int, line: ParsedLine, statement: ast.Statement, comments: list[Token]) -> Iterator[Row]:
    comment = _comment_text(comments[0]) if comments else ""
    yield Row(number, joined(_ordered(line, statement)), comment)


def _ordered(line: ParsedLine, statement: ast.Statement) -> list[Token]:
    """The tokens of a statement with its clauses in canonical order and its spec without parentheses."""
    spec = getattr(statement, "spec", None)
    if spec is None:
        return line.tokens
    tree = line.tree.trees[-1]
    tokens = [token for token in line.tokens if token.start < tree.start]
    for index, (clause, _) in enumerate(_by_rank(zip(tree.trees, spec.clauses, strict=True))):
        if index:
            tokens.append(Token("COMMA", ",", tree.start, tree.start))
        tokens.extend(clause.tokens)
    return tokens


def _by_rank(pairs: Iterable[tuple[Tree, ast.Clause]]) -> list[tuple[Tree, ast.Clause]]:
    """Format, operands, backward, options: a spec applies its options last, wherever they stand in it.

    As written where a `let` is named, which may hold any of them.
    """
    pairs = list(pairs)
    if any(isinstance(clause, ast.ReferenceClause) for _, clause in pairs):
        return pairs
    return sorted(pairs, key=lambda pair: _rank(pair[1]))


def _rank(clause: ast.Clause) -> int:
    if isinstance(clause, ast.OperandClause):
        return (None, "weight", "input").index(clause.operand)
    return 3 if isinstance(clause, ast.BackwardClause) else 4


def _broken(source: SourceFile, line: ParsedLine, comments: list[Token]) -> Iterator[Row]:
    """A statement over several lines: each with its own spacing, indented by the parentheses around it."""
    by_number: dict[int, list[Token]] = {}
    for token in sorted([*line.tokens, *comments], key=lambda token: token.start):
        by_number.setdefault(source.position(token.start)[0], []).append(token)
    depth = 0
    for number, tokens in by_number.items():
        margin = INDENT * (depth - (tokens[0].type == "RPAR"))
        comment = _comment_text(tokens.pop()) if tokens[-1].type == "COMMENT" else ""
        depth += sum((token.type == "LPAR") - (token.type == "RPAR") for token in tokens)
        if tokens:
            yield Row(number, margin + joined(tokens, line.tokens), comment)
        else:
            yield Row(number, margin + comment)


def _assemble(rows: list[Row]) -> str:
    """The rows as text, one blank line where the source had any, comments aligned between blank lines."""
    groups: list[list[Row]] = []
    for row in rows:
        if groups and row.number - groups[-1][-1].number <= 1:
            groups[-1].append(row)
        else:
            groups.append([row])
    return "\n".join("".join(f"{text}\n" for text in _aligned(group)) for group in groups)


def _aligned(group: list[Row]) -> Iterator[str]:
    width = max((len(row.code) for row in group if row.comment), default=0)
    for row in group:
        yield f"{row.code:{width}}  {row.comment}" if row.comment else row.code


def _checked(source: SourceFile, before: ast.File, text: str) -> tuple[str, tuple[Diagnostic, ...]]:
    """The text, if it says the same as the source; else the source, and a finding."""
    result = SourceFile(source.path, text)
    concrete = parse_tree(result)
    after, findings = lower(result, concrete)
    comments = [_comment_text(comment) for comment in concrete.comments]
    kept = comments == [_comment_text(comment) for comment in parse_tree(source).comments]
    if not findings and kept and meaning(after) == meaning(before):
        return text, ()
    message = "the canonical form of this file would not mean the same; it was left as it is"
    help = "this is a defect of the formatter: please report it with the file"
    return source.text, (error("P020", message, source.span(0, 0), help=help),)


def meaning(file: ast.File) -> tuple[object, ...]:
    """What a file says, for comparison: the clauses between two names of `let`s are in no order."""
    return file.ignores, *(_statement_meaning(statement) for statement in file.statements)


def _statement_meaning(statement: ast.Statement) -> object:
    if not isinstance(statement, ast.Rule | ast.Default | ast.Let):
        return statement
    bare = replace(statement, spec=replace(statement.spec, clauses=()))
    return bare, _runs(statement.spec.clauses)


def _runs(clauses: Iterable[ast.Clause]) -> list[ast.Clause | Counter[ast.Clause]]:
    """Each name of a `let` in its place, and what stands between them."""
    runs: list[ast.Clause | Counter[ast.Clause]] = []
    between = Counter[ast.Clause]()
    for clause in clauses:
        if isinstance(clause, ast.ReferenceClause):
            runs += between, clause
            between = Counter()
        else:
            between[clause] += 1
    return [*runs, between]
