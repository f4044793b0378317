"""`precc formats`: the number formats of the language."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from precc.cli.arguments import ArgumentParser
from precc.cli.terminal import print_json, print_table
from precc.formats import FORMATS, Format

DESCRIPTION = "List the number formats: elements, blocks, scales, and what may be chosen."
EXAMPLES = """\
  precc formats
  precc formats --output-format json

JSON: a list of {name, bits, element, weight_block, input_block, block_scale, outer_scale, weight_scopes,
input_scopes, groups, weight_only, summary}."""


def configure(parser: ArgumentParser) -> None:
    """The arguments of `formats`."""
    parser.add_output_format()


def run(options: Namespace) -> int:
    """This prints the table of formats."""
    if options.output_format == "json":
        print_json([_to_json(form) for form in FORMATS.values()])
        return 0
    heads = ("format", ">bits", "element", "block", "block scale", "outer scale", "scopes", "about")
    print_table(heads, [_row(form) for form in FORMATS.values()])
    return 0


def _row(form: Format) -> tuple[str, ...]:
    scopes = " ".join(dict.fromkeys((*form.weight_scopes, *form.input_scopes)))
    outer = "fp32" if form.outer_scale else "-"
    return (
        form.name,
        str(form.bits),
        form.element,
        _block(form),
        form.block_scale or "-",
        outer,
        scopes or "-",
        form.summary,
    )


def _block(form: Format) -> str:
    if form.groups:
        return f"1x{{{','.join(map(str, form.groups))}}}"
    return "x".join(map(str, form.weight_block)) if form.weight_block else "-"


def _to_json(form: Format) -> dict[str, Any]:
    return {
        "name": form.name,
        "bits": form.bits,
        "element": form.element,
        "weight_block": form.weight_block and list(form.weight_block),
        "input_block": form.input_block and list(form.input_block),
        "block_scale": form.block_scale,
        "outer_scale": form.outer_scale,
        "weight_scopes": list(form.weight_scopes),
        "input_scopes": list(form.input_scopes),
        "groups": list(form.groups),
        "weight_only": form.weight_only,
        "summary": form.summary,
    }
