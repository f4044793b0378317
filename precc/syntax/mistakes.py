"""This module explains why a line does not parse. Each shape of mistake is one small function, tried in turn.

Loaded only when there is such a line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from precc.diagnostics import Diagnostic, Edit, Fix, error
from precc.formats.table import FORMATS
from precc.source import SourceFile, Span
from precc.syntax.layouts import keys_help
from precc.syntax.lexer import UNKNOWN, LogicalLine
from precc.syntax.parser import END, MAX_DEPTH, Unexpected
from precc.syntax.tree import Token
from precc.syntax.words import RESERVED

DESCRIPTIONS = {
    "$END": "the end of the line",
    "BRACKETS": "brackets",
    "COLON": "`:`",
    "COMMA": "`,`",
    "COMPARISON": "a comparison",
    "DOT": "`.`",
    "EQUAL": "`=`",
    "EXCEPT": "`except`",
    "IN": "`in`",
    "IS": "`is`",
    "LPAR": "`(`",
    "PERCENT": "`%`",
    "QUESTION": "`?`",
    "ROLE": "a role",
    "RPAR": "`)`",
    "STRING": "a name in double quotes",
    "WORD": "a name",
}


_FORMAT_HELP = "write a format, for example `bf16`"
_EXPECT_HELP = "write for example `expect @router is unquantized` or `expect fraction(nvfp4) >= 75%`"


class Mistake(NamedTuple):
    """A line that does not parse, and where it stopped to."""

    source: SourceFile
    line: LogicalLine
    token: Token
    previous: Token | None
    expected: frozenset[str]

    @property
    def first(self) -> Token:
        """The token that starts the line, often a word that says what the line was to be."""
        return self.line.tokens[0]

    def span(self, token: Token) -> Span:
        """Where a token stands."""
        return self.source.span(token.start, token.end)

    def report(
        self,
        message: str,
        *,
        help: str | None = None,
        code: str = "P001",
        at: Token | None = None,
        fix: str | None = None,
    ) -> Diagnostic:
        """An error at a token; `fix` is what to write in its place."""
        span = self.span(at or self.token)
        edit = Fix((Edit(span, fix),), True) if fix is not None else None
        return error(code, message, span, help=help, fix=edit)


def too_deep(source: SourceFile, line: LogicalLine) -> Diagnostic:
    """The finding for a line with more parentheses in each other than anyone reads."""
    token = line.too_deep or line.tokens[0]
    message = f"parentheses stand more than {MAX_DEPTH} deep in each other"
    return error("P012", message, source.span(token.start, token.end), help="split the rule into several")


def explain(source: SourceFile, line: LogicalLine, unexpected: Unexpected) -> Diagnostic:
    """The one finding for a line that does not parse."""
    mistake = Mistake(source, line, *unexpected)
    for explanation in _EXPLANATIONS:
        finding = explanation(mistake)
        if finding:
            return finding
    return _generic(mistake)


def _unmatched(mistake: Mistake) -> Diagnostic | None:
    token = mistake.line.unmatched
    if token is None or (mistake.token.type == UNKNOWN and mistake.token.start < token.start):
        return None
    if token.type == "LPAR":
        return mistake.report("this parenthesis is not closed", help="add `)` where the list ends", at=token)
    return mistake.report("this parenthesis closes nothing", help="remove it, or open one with `(`", at=token)


def _unknown_character(mistake: Mistake) -> Diagnostic | None:
    token = mistake.token
    if token.type != UNKNOWN:
        return None
    if token.text == "[":
        return mistake.report("these brackets are not closed", code="P005", help="write for example `layers[-8:]`")
    if token.text == "]":
        return mistake.report("this `]` closes nothing", code="P005", help="write for example `layers[-8:]`")
    if token.text == '"':
        return mistake.report("this quote is not closed", help='close it on the same line: "nvfp4_rl"')
    if token.text in "'`“”„‘’«»":
        return mistake.report("names stand in double quotes", help='write "nvfp4_rl", with plain double quotes')
    if token.text == "-":
        help = "names hold letters, digits and `_`; use `*` for any other character"
        return mistake.report("`-` stands in brackets only, before a number", help=help)
    shown = f"`{token.text}`" if token.text.isprintable() and not token.text.isspace() else f"U+{ord(token.text):04X}"
    return mistake.report(f"the character {shown} has no meaning here", help="remove it")


def _reserved(mistake: Mistake) -> Diagnostic | None:
    """A word of the language that stands where a path starts, or that a `let` would name."""
    token, previous = mistake.token, mistake.previous
    if token.text in RESERVED and previous and previous.type == "LET":
        message = f"`{token.text}` is a word of the language and cannot name a spec"
        return mistake.report(message, code="P013", help="choose another name")
    is_start = previous is mistake.first and token.type in ("COLON", "COMMA", "QUESTION", "IN", "EXCEPT")
    suspect = previous if is_start and previous else token
    if suspect.text not in RESERVED or (suspect is token and not {"WORD", "ROLE"} <= mistake.expected):
        return None
    message = f"`{suspect.text}` is a word of the language and cannot start a path"
    help = f"write `**.{suspect.text}`: behind a dot every word is free"
    return mistake.report(message, code="P008", help=help, at=suspect, fix=f"**.{suspect.text}")


def _layout(mistake: Mistake) -> Diagnostic | None:
    is_behind_colon = mistake.first is not mistake.previous or mistake.token.type == END
    if mistake.first.type not in ("TRAIN", "ROLLOUT") or not is_behind_colon:
        return None
    side = mistake.first.text
    if mistake.token.type == "COMMA":
        return mistake.report("settings are separated by spaces", help=keys_help(side), fix="")
    return mistake.report(f"`{side}:` holds settings of the form `key=value`", help=keys_help(side), at=_place(mistake))


def _place(mistake: Mistake) -> Token:
    """The unexpected token, or what stands before the end of the line."""
    return mistake.previous if mistake.token.type == END and mistake.previous else mistake.token


def _unquoted(mistake: Mistake) -> Diagnostic | None:
    if mistake.expected != {"STRING"}:
        return None
    word = mistake.first.text
    if mistake.token.type == "WORD":
        text = mistake.token.text
        fix = f'"{text}"' if mistake.token is mistake.line.tokens[-1] else None
        return mistake.report(f"`{word}` takes a name in double quotes", help=f'write `{word} "{text}"`', fix=fix)
    return mistake.report(
        f"`{word}` takes a name in double quotes", help=f'write `{word} "nvfp4_rl"`', at=_place(mistake)
    )


def _open_brace(mistake: Mistake) -> Diagnostic | None:
    """A brace that swallowed the rest of its line."""
    previous = mistake.previous
    if previous is None or previous.text.count("{") <= previous.text.count("}"):
        return None
    help = "close it: `{q,k,v}_proj`"
    return mistake.report("this `{` is not closed", code="P019", help=help, at=previous)


def _colon(mistake: Mistake) -> Diagnostic | None:
    """A rule without its colon, with another sign for it, or with nothing behind it."""
    token, previous = mistake.token, mistake.previous
    if token.type == END and previous and previous.type == "COLON":
        help = "write a target, for example `te`" if mistake.first.type == "TARGETS" else _FORMAT_HELP
        return mistake.report("nothing stands behind this colon", help=help, at=previous)
    if "COLON" not in mistake.expected or previous is None or mistake.first.type == "EXPECT":
        return None
    help = "a rule is `SELECTOR: SPEC`, for example `experts.*: nvfp4 per_token`"
    if token.type == "EQUAL":
        return mistake.report("a colon stands between a selector and its spec", help=help, fix=":")
    if token.type == END:
        return mistake.report("this line has no colon and no spec", help=help, at=previous)
    if token.text in FORMATS:
        return mistake.report(f"a colon is missing before `{token.text}`", help=help)
    return None


def _comma(mistake: Mistake) -> Diagnostic | None:
    previous = mistake.previous
    if previous is None or previous.type != "COMMA" or mistake.token.type not in (END, "COMMA", "COLON", "RPAR"):
        return None
    return mistake.report("nothing stands behind this comma", help="remove it", at=previous, fix="")


def _path_of_role(mistake: Mistake) -> Diagnostic | None:
    previous = mistake.previous
    is_whole = previous is not None and previous.type in ("ROLE", "RPAR", "QUESTION")
    if not is_whole or mistake.token.type not in ("DOT", "BRACKETS"):
        return None
    help = "select a part of it with `in`: `down_proj in @routed_experts`"
    return mistake.report("only a path is continued with a dot or brackets", help=help)


def _expect(mistake: Mistake) -> Diagnostic | None:
    if mistake.first.type != "EXPECT":
        return None
    if mistake.token.type == "COMMA":
        help = "put the selectors in parentheses: `expect (A, B) is bf16`"
        return mistake.report("`expect` is about one selector", help=help)
    if mistake.token.type == "COLON" and mistake.previous is not mistake.first:
        return mistake.report("`expect` states a condition, not a spec", help=_EXPECT_HELP)
    if mistake.token.type == END:
        return mistake.report("this condition ends too early", help=_EXPECT_HELP, at=mistake.previous)
    return None


Explanation: TypeAlias = Callable[[Mistake], Diagnostic | None]

_EXPLANATIONS: tuple[Explanation, ...] = (
    _unmatched,
    _unknown_character,
    _reserved,
    _layout,
    _unquoted,
    _comma,
    _open_brace,
    _colon,
    _path_of_role,
    _expect,
)


def _generic(mistake: Mistake) -> Diagnostic:
    names = sorted(DESCRIPTIONS[name] for name in _possible(mistake) if name in DESCRIPTIONS)
    alternatives = f"{', '.join(names[:-1])} or {names[-1]}" if len(names) > 1 else "".join(names)
    help = f"expected {alternatives}" if alternatives else None
    if mistake.token.type == END:
        return mistake.report("this line ends too early", help=help, at=mistake.previous)
    shown = mistake.token.text if len(mistake.token.text) <= 40 else f"{mistake.token.text[:40]}…"
    return mistake.report(f"`{shown}` cannot stand here", help=help)


def _possible(mistake: Mistake) -> set[str]:
    """The expected terminals, without those that the tables allow in other statements only."""
    possible = set(mistake.expected)
    before = [token.type for token in mistake.line.tokens if token.start < mistake.token.start]
    if before.count("LPAR") == before.count("RPAR"):
        possible.discard("RPAR")
    possible.discard("COLON" if mistake.first.type == "EXPECT" else "IS")
    return possible
