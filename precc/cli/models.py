"""`precc models`: the models known by name."""

from __future__ import annotations

from argparse import Namespace

from precc.cli.arguments import ArgumentParser
from precc.cli.terminal import print_json, print_table
from precc.graph.catalogue import catalogue
from precc.graph.reading import read_model

DESCRIPTION = "List the models known by name; --model takes a config.json or a checkpoint folder as well."
EXAMPLES = """\
  precc models
  precc models --output-format json

JSON: a list of {name, architecture, family, layers, tensors, parameters, stored_as, stored_tensors, stored_elements};
the stored ones count the scales of a checkpoint that is published in low precision."""


_COUNTS = ("layers", "tensors", "parameters", "stored_tensors")


def configure(parser: ArgumentParser) -> None:
    """The arguments of `models`."""
    parser.add_output_format()


def run(options: Namespace) -> int:
    """This prints the catalogue."""
    graphs = [read_model(name) for name in catalogue()]
    shown = [
        {
            "name": graph.name,
            "architecture": graph.architecture,
            "family": graph.family,
            "layers": graph.layers,
            "tensors": sum(tensor.count for tensor in graph.tensors),
            "parameters": graph.parameters,
            "stored_as": graph.config["quantization"] or graph.config["torch_dtype"],
            "stored_tensors": graph.stored_tensors,
            "stored_elements": graph.stored_elements,
        }
        for graph in graphs
    ]
    if options.output_format == "json":
        print_json(shown)
        return 0
    rows = [
        (row["name"], row["architecture"], *(f"{row[key]:,}" for key in _COUNTS), row["stored_as"]) for row in shown
    ]
    print_table(("model", "architecture", *(f">{key.replace('_', ' ')}" for key in _COUNTS), "stored as"), rows)
    return 0
