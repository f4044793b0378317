"""`precc convert`: a checkpoint in the formats of a contract."""

from __future__ import annotations

import os
import re
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from precc.graph.forms import BF16
from precc_converter.verbs.console import check_contract, is_interrupt, number, print_json, refuse, terminable

if TYPE_CHECKING:
    from precc_converter.conversion.crew import Crew
    from precc_converter.conversion.flow import Conversion
    from precc_converter.conversion.layout import Shard
    from precc_converter.conversion.piece import Done

SUMMARY = "write a checkpoint in the formats of a contract"
DESCRIPTION = """\
Convert a checkpoint to the formats of a contract: a new folder of safetensors that a server loads, with the contract's
digest in every shard and in config.json.

The source is a folder of safetensors, or one file; it is never changed. It is in BF16, FP16 or FP32, or in low
precision: FP8 by block, channel or tensor, MXFP8, MXFP4, NVFP4, symmetric INT4 and INT8, in the names of DeepSeek,
ModelOpt, compressed-tensors and gpt-oss. What is stored as the contract decides keeps its codes and scales; anything
else is quantized from the dequantized numbers.

An interrupted conversion goes on when the same command is given again; a finished one is never written again, and is an
error (P605) that says so. Going on, it first reads the shards that are finished
and compares each with the checksum in its header (CRC-32 of every tensor, taken from memory when it was written): a
damaged one is written again. The same source and contract make the same tensors for any number of workers, shard size
and device.

Memory: each worker holds one group of tensors at a time: a weight, or those that share an outer scale, as gate and up.
Beside the 500 MB of torch that is, for each parameter of the largest group to be quantized, 3.2 bytes from 16-bit
sources and 6.2 from FP32 ones and those in low precision. What is only copied takes 1 MiB."""
EXAMPLES = """\
  precc compile nvfp4_rl --model checkpoint -o out
  precc convert checkpoint checkpoint-nvfp4 --contract out
  precc convert checkpoint checkpoint-nvfp4 --contract out --workers 8 --max-shard-size 2GB

JSON: {source, destination, contract, shards, tensors, bytes_read, bytes_written, bytes_checked, damaged: [FILE],
weights: {kept, quantized, requantized, dequantized}, seconds: {reading, quantizing, writing}}; bytes and seconds are
those of this run, seconds of all workers together; bytes_checked and damaged are those of the shards that an
interrupted run had finished. Weights are counted by what is done with them: kept are those in low precision whose codes
stay, requantized those that are quantized from the numbers of another."""

UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


_WORKERS = "processes on this machine, 1 or more (default: one a core)"
_SHARD_SIZE = "tensors in an output file at most, unless one group is larger: bytes, KB, MB, GB, KiB, … (default: 5GB)"


def configure(parser: ArgumentParser) -> None:
    """The arguments of `convert`."""
    parser.add_argument("source", metavar="SRC", help="the checkpoint: a folder, or a safetensors file")
    parser.add_argument("destination", metavar="DST", help="a new or an empty folder, or that of an interrupted run")
    parser.add_argument("--contract", metavar="C", required=True, help="what `precc compile -o` wrote")
    parser.add_argument("--workers", metavar="N", type=number, help=_WORKERS)
    parser.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        metavar="DEVICE",
        default="auto",
        help="auto, cpu, cuda; auto takes a GPU where there is one (default: auto)",
    )
    parser.add_argument("--max-shard-size", metavar="SIZE", type=_size, default="5GB", help=_SHARD_SIZE)
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
    except BaseException as problem:
        telling.stop()
        if is_interrupt(problem):
            sys.stderr.write(f"precc: {telling.interrupted(options.destination)}\n")
        raise
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
        self._conversion: Conversion | None = None

    def start(self, conversion: Conversion, unfinished: Sequence[Shard]) -> Any:
        from precc_converter.conversion.progress import Progress

        self._conversion = conversion
        self._progress = None if self._quiet else Progress(unfinished)
        return self._progress or (lambda done: None)

    def stop(self) -> None:
        if self._progress is not None:
            self._progress.close()

    def interrupted(self, destination: str) -> str:
        """What is said of a run that was stopped, and of the command that goes on."""
        shards = self._conversion.shards if self._conversion else ()
        finished = sum(os.path.exists(os.path.join(destination, shard.file)) for shard in shards)
        if not finished:
            return "interrupted before a shard was finished: the same command begins again"
        return f"interrupted: {finished:,} of {len(shards):,} shards are finished and kept, the same command goes on"

    def result(self, done: Done, options: Namespace) -> dict[str, Any]:
        assert self._conversion is not None
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
            "weights": _counts(shards),
            "seconds": {step: round(seconds, 3) for step, seconds in done.seconds.items()},
        }


def _counts(shards: Sequence[Shard]) -> dict[str, int]:
    """How many weights are quantized or in low precision, by what is done with them."""
    made = (member.made for shard in shards for unit in shard.units for member in unit.members)
    found = Counter(_DONE[one.action] for one in made if (one.form or BF16).is_quantized or one.weight.is_quantized)
    return {done: found[done] for done in dict.fromkeys(_DONE.values())}


_DONE = {
    "copy": "kept",
    "keep_fp8_as_mxfp8": "kept",
    "quantize": "quantized",
    "requantize": "requantized",
    "dequantize": "dequantized",
}
"""What is done with a weight → what it is counted as."""


def _check(options: Namespace) -> None:
    """What is no conversion at all ends it as a mistake on the command line."""
    if not os.path.lexists(options.source):
        options.refuse(f"there is no checkpoint `{options.source}`: give a folder, or its one .safetensors file")
    check_contract(options)
    if find_spec("torch") is None:
        options.refuse("converting needs torch: install precc[convert]")
    if options.device == "cuda":
        import torch

        if not torch.cuda.is_available():
            options.refuse("--device cuda: torch finds no GPU here")


_LOW = (
    "of the weights in low precision, {kept:,} keep their codes and scales, {requantized:,} are quantized again from "
    "their numbers, {dequantized:,} dequantized\n"
)


def _show(result: dict[str, Any], format: str | None) -> None:
    if format == "json":
        print_json(result)
        return
    files = f"{result['shards']} shard{'s' if result['shards'] != 1 else ''}"
    written = f"{result['destination']}: {result['tensors']:,} tensors in {files}"
    sys.stdout.write(f"{written}, contract {result['contract'][:12]}\n")
    weights = result["weights"]
    if weights["kept"] or weights["requantized"] or weights["dequantized"]:
        sys.stdout.write(_LOW.format(**weights))
    for file in result["damaged"]:
        sys.stdout.write(f"{file} was damaged since the interrupted run wrote it: it was written again\n")


def _size(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]?I?B?)", text.upper())
    if match is None or match[2] not in UNITS or float(match[1]) * UNITS[match[2]] < 1:
        raise ArgumentTypeError(f"`{text}` is no size from 1 byte: 5GB, 500MB, 2GiB, or so many bytes")
    return int(float(match[1]) * UNITS[match[2]])
