"""What corruptions are made of: one value, line or variable is edited, in every place where it can be."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any, TypeAlias

Artifacts: TypeAlias = Mapping[str, str]
Mutation: TypeAlias = Callable[[Artifacts], Iterator[Artifacts]]
"""Artifacts (path → text) → every variant of one corruption; none where it does not apply."""

Change: TypeAlias = Callable[[Any], Iterator[Any]]
"""The same for the content of one file, which it leaves as it is."""

Place: TypeAlias = tuple[str | int, ...]
"""Where a value stands in parsed content: keys and positions, from the top."""


# --- parsed content ----------------------------------------------------------------------------------


def replaced(content: Any, place: Place, value: Any) -> Any:
    """A copy with another value at a place."""
    copy = deepcopy(content)
    _holder(copy, place)[place[-1]] = value
    return copy


def removed(content: Any, place: Place) -> Any:
    """A copy without what stands at a place."""
    copy = deepcopy(content)
    del _holder(copy, place)[place[-1]]
    return copy


def found(content: Any, place: Place) -> Any:
    """What stands at a place; None if nothing does."""
    for key in place:
        content = content.get(key) if isinstance(content, dict) else None
    return content


def _holder(content: Any, place: Place) -> Any:
    for key in place[:-1]:
        content = content[key]
    return content


def laid_out(content: Any) -> str:
    """JSON as most artifacts have it."""
    return json.dumps(content, indent=2) + "\n"


def in_json(path: str, change: Change, layout: Callable[[Any], str] = laid_out) -> Mutation:
    """A change of one JSON file."""

    def mutation(artifacts: Artifacts) -> Iterator[Artifacts]:
        content = json.loads(artifacts[path]) if path in artifacts else None
        if content is not None:
            yield from ({**artifacts, path: layout(made)} for made in change(content))

    return mutation


# --- lines -------------------------------------------------------------------------------------------


def in_lines(path: str, change: Change) -> Mutation:
    """A change of the lines of one file; comments stay where they are."""

    def mutation(artifacts: Artifacts) -> Iterator[Artifacts]:
        lines = artifacts.get(path, "").splitlines()
        notes = [line for line in lines if line.startswith("#")]
        for made in change([line for line in lines if not line.startswith("#")]):
            yield {**artifacts, path: "".join(f"{line}\n" for line in (*notes, *made))}

    return mutation


def each_dropped(lines: list[str]) -> Iterator[list[str]]:
    """Every line left out once."""
    yield from ([*lines[:at], *lines[at + 1 :]] for at in range(len(lines)))


def each_word(changes: Mapping[str, str]) -> Change:
    """Every line that has one of these words, with another in its place."""

    def change(lines: list[str]) -> Iterator[list[str]]:
        for at, line in enumerate(lines):
            for old, new in changes.items():
                if old in line:
                    yield [*lines[:at], line.replace(old, new), *lines[at + 1 :]]

    return change


def added(*more: str) -> Change:
    """One further line behind the others, each of these once."""
    return lambda lines: ([*lines, line] for line in more)


# --- environments ------------------------------------------------------------------------------------


def environment(shell: str, listed: str, change: Change) -> Mutation:
    """A change of what is set and unset (name → value, or None), made in both files of an environment."""

    def mutation(artifacts: Artifacts) -> Iterator[Artifacts]:
        content = json.loads(artifacts[listed])
        state = {**content["set"], **dict.fromkeys(content["unset"])}
        for made in change(state):
            yield {**artifacts, **written(artifacts, shell, made), **_listed(listed, content, made)}

    return mutation


def written(artifacts: Artifacts, shell: str, state: Mapping[str, str | None]) -> dict[str, str]:
    """The shell file of a state, its comments kept."""
    notes = [line for line in artifacts[shell].splitlines() if line.startswith("#")]
    lines = [f"unset {name}" if value is None else f"export {name}={value}" for name, value in state.items()]
    return {shell: "".join(f"{line}\n" for line in (*notes, *lines))}


def _listed(listed: str, content: Mapping[str, Any], state: Mapping[str, str | None]) -> dict[str, str]:
    values = {name: value for name, value in state.items() if value is not None}
    unset = [name for name, value in state.items() if value is None]
    return {listed: json.dumps({**content, "set": values, "unset": unset}, indent=2) + "\n"}


def one_unset(state: dict[str, str | None]) -> Iterator[dict[str, str | None]]:
    """Every variable that is set, unset instead."""
    yield from ({**state, name: None} for name, value in state.items() if value is not None)


def one_of_both(shell: str, listed: str) -> Mutation:
    """A variable unset in one file of an environment and not in the other."""

    def mutation(artifacts: Artifacts) -> Iterator[Artifacts]:
        for made in environment(shell, listed, one_unset)(artifacts):
            yield {**artifacts, shell: made[shell]}
            yield {**artifacts, listed: made[listed]}

    return mutation


def one_forgotten(state: dict[str, str | None]) -> Iterator[dict[str, str | None]]:
    """Every variable neither set nor unset: the caller's value stays."""
    yield from ({other: state[other] for other in state if other != name} for name in state)


def one_contrary(contrary: Mapping[str, str]) -> Change:
    """Every variable that is set, with the other value; `contrary` has those that are not 0 or 1."""
    other = {"0": "1", "1": "0", **contrary}

    def change(state: dict[str, str | None]) -> Iterator[dict[str, str | None]]:
        for name, value in state.items():
            if value is not None and value in other:
                yield {**state, name: other[value]}

    return change


def one_added(values: Mapping[str, str]) -> Change:
    """Every variable that is unset, set instead."""
    return lambda state: ({**state, name: value} for name, value in values.items() if state.get(name, "") is None)
