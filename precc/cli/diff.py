"""`precc diff`: what two policies decide otherwise on a model."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

from precc.cli.arguments import ArgumentParser
from precc.cli.config import fill
from precc.cli.deciding import decide
from precc.cli.errors import Refused, UsageError
from precc.cli.subjects import one_model
from precc.cli.terminal import gib, print_json, print_table
from precc.contract import Contract, Entry, load_contract
from precc.contract.fold import fold
from precc.contract.serial import ContractError
from precc.formats import Decision

DESCRIPTION = """\
Compare what two policies decide on a model, tensor by tensor. Each is a policy file, a ready policy's name, or what
a compile wrote (a folder or its contract.json), which needs no --model."""
EXAMPLES = """\
  precc diff nvfp4_rl mine.prec --model qwen3-30b-a3b
  precc diff out policy.prec --model qwen3-30b-a3b --exit-code

JSON: {equal, a: {policy, model, digest, bytes, kv_cache}, b: {the same}, tensors: [{name, tensors, parameters,
a, b}]}; a and b of a line are decisions as `explain` shows them, or null where that side has no such tensor."""

Piece = tuple[Entry | None, Entry | None]


def configure(parser: ArgumentParser) -> None:
    """The arguments of `diff`."""
    parser.add_policy("a", "A")
    parser.add_policy("b", "B")
    parser.add_models(several=False)
    parser.add_targets()
    parser.add_layouts()
    parser.add_argument("--exit-code", action="store_true", help="exit with 1 if the two differ")
    parser.add_output_format()


def run(options: Namespace) -> int:
    """This prints the differences."""
    fill(options, options.a)
    shown = compare(_side(options.a, options), _side(options.b, options))
    if options.output_format == "json":
        print_json(shown)
    else:
        _print(shown)
    return int(options.exit_code and not shown["equal"])


def _side(argument: str, options: Namespace) -> Contract:
    """One side's contract. Raises Refused with the errors that stand in its way."""
    if os.path.isdir(argument) or argument.endswith(".json"):
        try:
            return load_contract(argument)
        except (ContractError, UnicodeDecodeError, RecursionError) as problem:
            raise UsageError(str(problem), "compile the policy again") from None
        except FileNotFoundError:
            raise UsageError(f"`{argument}` was not written by a compile: there is no contract.json") from None
    binding, done = decide(argument, one_model(options.models), options)
    if done.has_errors:
        raise Refused(finding for finding in done.findings if finding.is_error)
    return binding.contract


def compare(a: Contract, b: Contract) -> dict[str, Any]:
    """The comparison, in the shape that `--output-format json` writes."""
    tensors = [*_changes(a, b)]
    return {
        "equal": not tensors and a.kv_cache == b.kv_cache,
        "a": _about(a),
        "b": _about(b),
        "tensors": tensors,
    }


def _about(contract: Contract) -> dict[str, Any]:
    return {
        "policy": contract.policy,
        "model": contract.model.name,
        "digest": contract.digest,
        "bytes": sum(entry.stored_bits for entry in contract.entries) // 8,
        "kv_cache": contract.kv_cache,
    }


def _changes(a: Contract, b: Contract) -> Iterator[dict[str, Any]]:
    """What differs, neighbouring layers and experts that change alike as one line."""
    changed: dict[int, Piece] = {}
    entries = []
    for one, other in _pieces(a, b):
        if _decided(one) != _decided(other):
            entry = one or other
            assert entry is not None
            entries.append(entry)
            changed[id(entry)] = one, other

    def alike(entry: Entry) -> tuple[Decision | None, Decision | None]:
        one, other = changed[id(entry)]
        return _decided(one), _decided(other)

    for line in fold(entries, alike):
        before, after = alike(line.entry)
        count = len(line.layers or (0,)) * len(line.experts or (0,))
        yield {
            "name": line.name,
            "tensors": count,
            "parameters": count * line.entry.tensor.parameters // line.entry.tensor.count,
            "a": None if before is None else before.to_json(),
            "b": None if after is None else after.to_json(),
        }


def _decided(entry: Entry | None) -> Decision | None:
    return None if entry is None else entry.decision


def _pieces(a: Contract, b: Contract) -> Iterator[Piece]:
    """Both sides' entries of each tensor, ranges of experts cut where either side cuts them."""
    sides = (_by_tensor(a), _by_tensor(b))
    for key in dict.fromkeys((*sides[0], *sides[1])):
        mine, theirs = sides[0].get(key, []), sides[1].get(key, [])
        for experts in _cuts([*mine, *theirs]):
            yield _within(mine, experts), _within(theirs, experts)


def _by_tensor(contract: Contract) -> dict[tuple[object, ...], list[Entry]]:
    grouped: dict[tuple[object, ...], list[Entry]] = {}
    for entry in contract.entries:
        tensor = entry.tensor
        grouped.setdefault((tensor.path, tensor.parameter, tensor.shape), []).append(entry)
    return grouped


def _cuts(entries: list[Entry]) -> Iterator[range | None]:
    ranges = [entry.tensor.experts for entry in entries]
    if None in ranges:
        yield None
        return
    ends = sorted({end for experts in ranges if experts is not None for end in (experts.start, experts.stop)})
    yield from (range(start, stop) for start, stop in pairwise(ends))


def _within(entries: list[Entry], experts: range | None) -> Entry | None:
    """A new entry for these experts; each has an identity of its own."""
    for entry in entries:
        own = entry.tensor.experts
        if experts is None:
            return replace(entry)
        if own is not None and experts.start in own:
            return replace(entry, tensor=entry.tensor.narrowed(experts))
    return None


def _text(decision: dict[str, Any] | None) -> str:
    return "-" if decision is None else str(Decision.from_json(decision))


def _print(shown: dict[str, Any]) -> None:
    a, b = shown["a"], shown["b"]
    if shown["equal"]:
        print(f"{a['policy']} and {b['policy']} decide the same on {a['model']} (digest {a['digest'][:12]})")
        return
    print(f"a: {a['policy']} on {a['model']}, {gib(a['bytes'])}, digest {a['digest'][:12]}")
    print(f"b: {b['policy']} on {b['model']}, {gib(b['bytes'])}, digest {b['digest'][:12]}")
    if a["kv_cache"] != b["kv_cache"]:
        print(f"kv_cache: {a['kv_cache']} -> {b['kv_cache']}")
    if shown["tensors"]:
        print()
        rows = [
            (f"{row['tensors']:,}", f"{row['parameters']:,}", row["name"], _text(row["a"]), _text(row["b"]))
            for row in shown["tensors"]
        ]
        print_table((">tensors", ">parameters", "name", "a", "b"), rows)
