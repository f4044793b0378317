"""`precc targets`: the backends that are installed."""

from __future__ import annotations

from argparse import Namespace

from precc.backend import Backend
from precc.cli.arguments import ArgumentParser
from precc.cli.subjects import Targets
from precc.cli.terminal import print_json, print_table

DESCRIPTION = "List the targets, the engines that each writes for, and the versions that are modelled."
EXAMPLES = """\
  precc targets
  precc targets --output-format json

JSON: a list of {name, engines: {ENGINE: [VERSION, newest first]}}."""


def configure(parser: ArgumentParser) -> None:
    """The arguments of `targets`."""
    parser.add_output_format()


def run(options: Namespace) -> int:
    """This prints the installed targets."""
    backends = Targets(Namespace(targets=None, target_defaults=None)).every()
    if options.output_format == "json":
        print_json([{"name": b.name, "engines": {e: list(v) for e, v in b.engines.items()}} for b in backends])
        return 0
    rows = [row for backend in backends for row in _rows(backend)]
    print_table(("target", "engine", "versions"), rows)
    return 0


def _rows(backend: Backend) -> list[tuple[str, str, str]]:
    if not backend.engines:
        return [(backend.name, "-", "-")]
    return [(backend.name, engine, " ".join(versions)) for engine, versions in backend.engines.items()]
