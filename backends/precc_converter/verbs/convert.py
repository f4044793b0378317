"""`precc convert`: a checkpoint in the formats of a contract."""

from __future__ import annotations

import os
import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from contextlib import AbstractContextManager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from precc_converter.verbs.console import number, print_json, refuse, terminable

if TYPE_CHECKING:
    from precc_converter.conversion.crew import Crew
    from precc_converter.conversion.flow import Conversion
    from precc_converter.conversion.layout import Shard
    from precc_converter.conversion.piece import Done

SUMMARY = "write a checkpoint in the formats of a contract"
DESCRIPTION = """\
Convert a checkpoint to the formats of a contract: a new folder of safetensors that a server loads, with the contract's
digest in every shard and in config.json.

The source is a folder of safetensors in BF16, FP16, FP32 or FP8 with 128×128 blocks, or one file; it is never changed.
An interrupted conversion goes on when the same command is given again. It first reads the shards that are finished
and compares each with the checksum in its header (CRC-32 of every tensor, taken from memory when it was written): a
damaged one is written again. The same source and contract make the same tensors for any number of workers, shard size
and device.

Memory: each worker holds one group of tensors at a time: a weight, or those that share an outer scale, as gate and up.
Beside the 500 MB of torch that is, for each parameter of the largest group to be quantized, 3.2 bytes from 16-bit
sources and 6.2 from FP8 and FP32 ones. What is only copied takes 8 MiB."""
EXAMPLES = """\
  precc compile nvfp4_rl --model checkpoint -o out
  precc convert checkpoint checkpoint-nvfp4 --contract out
  precc convert checkpoint checkpoint-nvfp4 --contract out --workers 8 --max-shard-size 2GB

JSON: {source, destination, contract, shards, tensors, bytes_read, bytes_written, bytes_checked, damaged: [FILE],
seconds: {reading, quantizing, writing}}; bytes and seconds are those of this run, seconds of all workers together;
bytes_checked and damaged are those of the shards that an interrupted run had finished."""

UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def configure(parser: ArgumentParser) -> None:
    """The arguments of `convert`."""
    parser.add_argument("source", metavar="SRC", help="the checkpoint: a folder, or a safetensors file")
    parser.add_argument("destination", metavar="DST", help="a new or an empty folder, or that of an interrupted run")
    parser.add_argument("--contract", metavar="C", required=True, help="what `precc compile -o` wrote")
    parser.add_argument("--workers", metavar="N", type=number, help="processes on this machine (default: one a core)")
    parser.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        metavar="DEVICE",
        default="auto",
        help="auto, cpu, cuda; auto takes a GPU where there is one (default: auto)",
    )
    parser.add_argument(
        "--max-shard-size", metavar="SIZE", type=_size, default="5GB", help="of an output file (default: 5GB)"
    )
    parser.add_argument(
        "--ray",
        nargs="?",
        const="",
        metavar="ADDRESS",
        help="workers of a Ray cluster that sees the same folders (default: the running one, else a new one here)",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress on the error stream")
    parser.add_argument(
        "--output-format", choices=("text", "json"), metavar="FORMAT", help="text, json (default: text)"
    )
    parser.set_defaults(refuse=parser.error)


def run(options: Namespace) -> int:
    """This converts, and prints what was written or why not."""
    from precc_converter.conversion.findings import NotConverted
    from precc_converter.conversion.flow import convert

    _check(options)
    telling = _Telling(options.quiet)
    try:
        with terminable():
            done = convert(
                options.source,
                options.destination,
                options.contract,
                workers=options.workers,
                device=options.device,
                max_shard_size=options.max_shard_size,
                crew=_crew(options),
                started=telling.start,
            )
    except NotConverted as problem:
        telling.stop()
        return refuse(problem, options.output_format)
    telling.stop()
    _show(telling.result(done, options), options.output_format)
    return 0


def _crew(options: Namespace) -> AbstractContextManager[Crew] | None:
    if options.ray is None:
        return None
    from precc_converter.conversion.cluster import cluster

    return cluster(options.ray or None, options.device)


class _Telling:
    """What the user is told while it lasts, and what of it is needed afterwards."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._progress: Any = None

    def start(self, conversion: Conversion, unfinished: Sequence[Shard]) -> Any:
        from precc_converter.conversion.progress import Progress

        self._conversion = conversion
        self._progress = None if self._quiet else Progress(unfinished)
        return self._progress or (lambda done: None)

    def stop(self) -> None:
        if self._progress is not None:
            self._progress.close()

    def result(self, done: Done, options: Namespace) -> dict[str, Any]:
        shards = self._conversion.shards
        return {
            "source": options.source,
            "destination": options.destination,
            "contract": self._conversion.contract.digest,
            "shards": len(shards),
            "tensors": sum(len(unit.outputs) for shard in shards for unit in shard.units),
            "bytes_read": done.bytes_in,
            "bytes_written": done.bytes_out,
            "bytes_checked": done.bytes_checked,
            "damaged": list(done.damaged),
            "seconds": {step: round(seconds, 3) for step, seconds in done.seconds.items()},
        }


def _check(options: Namespace) -> None:
    """What is no conversion at all ends it as a mistake on the command line."""
    if not os.path.lexists(options.source):
        options.refuse(f"there is no checkpoint `{options.source}`: give a folder, or its one .safetensors file")
    if find_spec("torch") is None:
        options.refuse("converting needs torch: install precc[convert]")
    if options.device == "cuda":
        import torch

        if not torch.cuda.is_available():
            options.refuse("--device cuda: torch finds no GPU here")


def _show(result: dict[str, Any], format: str | None) -> None:
    if format == "json":
        print_json(result)
        return
    files = f"{result['shards']} shard{'s' if result['shards'] != 1 else ''}"
    written = f"{result['destination']}: {result['tensors']:,} tensors in {files}"
    sys.stdout.write(f"{written}, contract {result['contract'][:12]}\n")
    for file in result["damaged"]:
        sys.stdout.write(f"{file} was damaged since the interrupted run wrote it: it was written again\n")


def _size(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]?I?B?)", text.upper())
    if match is None or match[2] not in UNITS or float(match[1]) * UNITS[match[2]] < 1:
        raise ValueError(text)
    return int(float(match[1]) * UNITS[match[2]])


_size.__name__ = "size"
"""What argparse calls a value that is none."""
