"""`precc audit`: whether a checkpoint holds what a contract promises."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from precc_converter.verbs.console import check_contract, number, print_json, refuse, terminable

if TYPE_CHECKING:
    from precc_converter.auditing.flow import Audit, Bytes

SUMMARY = "compare a checkpoint with a contract, whoever wrote it"
DESCRIPTION = """\
Compare a checkpoint with a contract, whoever wrote it: each tensor's presence, dtype, shape and scales, the outer
scales that gate and up, or q, k and v, share, the index, what config.json and hf_quant_config.json declare. Only
headers are read, and those scales.

With --source also the bytes: each tensor is converted again, in memory, and compared. With --sample only so many
units (a weight with its scales, or the weights that share an outer scale); without --source these are looked at for
codes and scales that no quantizer writes."""
EXAMPLES = """\
  precc audit checkpoint-nvfp4 --contract out
  precc audit checkpoint-nvfp4 --contract out --source checkpoint
  precc audit checkpoint-nvfp4 --contract out --source checkpoint --sample 200 --workers 8

JSON: {checked, agree, findings: [as lint]}; tensors as they are stored. With --source or --sample also {bytes: {units,
of, tensors, seed}}: how many units were looked at, of how many, the tensors in them; seed is null for all units."""


def configure(parser: ArgumentParser) -> None:
    """The arguments of `audit`."""
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="a folder of safetensors, or one file")
    parser.add_argument("--contract", metavar="C", required=True, help="what `precc compile -o` wrote")
    parser.add_argument("--source", metavar="SRC", help="the checkpoint that it was made of: compare the bytes")
    parser.add_argument("--sample", metavar="N", type=number, help="look at the bytes of N units only, 1 or more")
    parser.add_argument("--seed", metavar="S", type=int, default=0, help="which N units (default: 0)")
    parser.add_argument(
        "--workers", metavar="N", type=number, default=1, help="processes for the bytes, 1 or more (default: 1)"
    )
    parser.add_argument(
        "--output-format", choices=("text", "json"), metavar="FORMAT", help="text, json (default: text)"
    )
    parser.set_defaults(refuse=parser.error)


def run(options: Namespace) -> int:
    """This audits, and prints what was found."""
    from precc_converter.auditing.flow import audit
    from precc_converter.conversion.findings import NotConverted

    _check(options)
    try:
        with terminable():
            done = audit(
                options.checkpoint,
                options.contract,
                source=options.source,
                sample=options.sample,
                seed=options.seed,
                workers=options.workers,
            )
    except NotConverted as problem:
        return refuse(problem, options.output_format)
    if options.output_format == "json":
        print_json(_to_json(done))
    else:
        _print(options.checkpoint, done)
    return int(bool(done.findings))


def _check(options: Namespace) -> None:
    """What is no audit at all ends it as a mistake on the command line."""
    if not os.path.exists(options.checkpoint):
        options.refuse(f"there is no checkpoint `{options.checkpoint}`")
    check_contract(options)
    if options.source is not None and not os.path.exists(options.source):
        options.refuse(f"there is no checkpoint `{options.source}`")
    if (options.source is not None or options.sample is not None) and find_spec("torch") is None:
        options.refuse("looking at bytes needs torch: install precc[convert]")


def _print(checkpoint: str, done: Audit) -> None:
    from precc.diagnostics import text

    agree = f"{done.agree:,} of {done.checked:,} tensors agree with contract {done.digest[:12]}"
    lines = [f"{checkpoint}: {agree}", *(_of_bytes(done.bytes) if done.bytes else ())]
    sys.stdout.write(text.render(done.findings) + "".join(f"{line}\n" for line in lines))
    sys.stdout.write(f"{text.summary(done.findings)}\n")


def _of_bytes(looked: Bytes) -> list[str]:
    chosen = "" if looked.seed is None else f", chosen by seed {looked.seed}"
    return [f"bytes: {looked.tensors:,} tensors, in {looked.units:,} of {looked.of:,} units{chosen}"]


def _to_json(done: Audit) -> dict[str, Any]:
    from precc.diagnostics.json import to_json

    shown: dict[str, Any] = {
        "checked": done.checked,
        "agree": done.agree,
        "findings": [to_json(finding) for finding in done.findings],
    }
    if done.bytes is not None:
        looked = done.bytes
        shown["bytes"] = {"units": looked.units, "of": looked.of, "tensors": looked.tensors, "seed": looked.seed}
    return shown
