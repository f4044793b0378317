"""`config.json` against that of the source: a conversion keeps everything in it but the quantization."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from precc.contract.wording import listed
from precc.diagnostics import Diagnostic, error
from precc_converter.auditing.checkpoint import Checkpoint, read_object
from precc_converter.auditing.configuration import short
from precc_converter.auditing.faults import CONFIGURATION
from precc_converter.conversion.configuration import CONFIG
from precc_converter.described import without_quantization

_ABSENT = object()
_MOST = 4
"""Keys that a finding shows."""

_WRITERS = ("_name_or_path", "transformers_version")
"""What a tool writes of itself."""

_HELP = "take the source's, with the quantization_config of `precc compile`, or convert again"


def source_findings(checkpoint: Checkpoint, source: Path) -> Iterator[Diagnostic]:
    """The keys of a checkpoint's `config.json` whose values are not those in the folder of its source.

    Of a checkpoint that names no contract, only what both files say is compared: other tools write defaults out.
    """
    found, wanted = read_object(checkpoint.folder / CONFIG), read_object(source / CONFIG)
    if isinstance(wanted, Diagnostic):
        yield wanted
    if isinstance(found, Mapping) and isinstance(wanted, Mapping):
        ours, theirs = (dict(_values(without_quantization(config))) for config in (found, wanted))
        keys = [key for key in {**theirs, **ours} if ours.get(key, _ABSENT) != theirs.get(key, _ABSENT)]
        if not checkpoint.digests:
            keys = [key for key in keys if key in ours and key in theirs and key not in _WRITERS]
        yield from _unlike([f"`{key}` is {_said(ours, key)}, not {_said(theirs, key)}" for key in keys])


def _unlike(differences: list[str]) -> Iterator[Diagnostic]:
    """One finding over all keys that differ, if any do."""
    more = [f"{len(differences) - _MOST} more"] if len(differences) > _MOST else []
    if differences:
        message = f"{CONFIG} is not that of the source: {listed([*differences[:_MOST], *more])}"
        yield error(CONFIGURATION, message, help=_HELP)


def _values(config: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """The values of a configuration, each by the keys that lead to it: `rope_scaling.factor`."""
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from _values(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value


def _said(values: Mapping[str, Any], key: str) -> str:
    return short(values[key]) if key in values else "absent"
