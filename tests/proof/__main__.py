"""`python -m tests.proof matrix` and `python -m tests.proof mutations`: what the page says, computed and printed."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from precc.backend import EngineUnavailable

from . import corruption, matrix, page
from .judges import TARGETS

Part = tuple[str, str, str]
"""The name of a part of the page, its text, and what is said beside it."""


def main(arguments: Sequence[str]) -> int:
    """This runs one of the two for every engine at once; exits with 1 where something is not as it must be."""
    parser = ArgumentParser(prog="python -m tests.proof", description="The engines' own code judges what is compiled.")
    parser.add_argument("what", choices=tuple(PARTS), help="every policy on every family, or corrupted artifacts")
    parser.add_argument("--target", choices=tuple(TARGETS), action="append", help="this one alone")
    parser.add_argument("--full", action="store_true", help="matrix: the well-known models, not small ones like them")
    parser.add_argument("--all", action="store_true", help="mutations: every variant, not a few of each")
    parser.add_argument("--verbose", action="store_true", help="mutations: every variant that one of the two misses")
    parser.add_argument("--write", action="store_true", help="write docs/verification.md")
    options = parser.parse_args(arguments)
    try:
        with ThreadPoolExecutor(len(TARGETS)) as pool:
            targets = options.target or list(TARGETS)
            made = list(pool.map(lambda target: PARTS[options.what](target, options), targets))
    except EngineUnavailable as missing:
        sys.stderr.write(f"{missing}: {missing.help}\n")
        return 2
    for name, text, beside in made:
        sys.stdout.write(f"\n== {name}\n\n{text}\n{beside}")
    if options.write:
        page.write({name: text for name, text, _ in made})
    return int(any("disagrees" in text for _, text, _ in made))


def _matrix(target: str, options: Namespace) -> Part:
    engine = matrix.run(target, options.full)
    agreed = sum(cell.words.startswith("agrees") for cell in engine.cells)
    return f"matrix {target}", engine.text(), f"{agreed} of {len(engine.cells)} cells agree ({engine.seconds:.0f} s)\n"


def _mutations(target: str, options: Namespace) -> Part:
    outcomes, seconds = corruption.run(target, options.all)
    lines = [f"only the engine: {one.corruption}: {trial}\n" for one in outcomes for trial in one.missed]
    if options.verbose:
        lines += [f"only read-back: {one.corruption}: {trial}\n" for one in outcomes for trial in one.unseen]
        lines += [f"neither: {one.corruption}: {trial}\n" for one in outcomes for trial in one.silent]
    tried = sum(len(one.trials) for one in outcomes)
    return f"mutations {target}", corruption.text(outcomes), "".join(lines) + f"{tried} variants ({seconds:.0f} s)\n"


PARTS: Mapping[str, Callable[[str, Namespace], Part]] = {"matrix": _matrix, "mutations": _mutations}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
