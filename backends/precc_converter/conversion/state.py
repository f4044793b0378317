"""What a folder says of the conversion that made it, or has begun to: the mark of an unfinished one, the digest of a
finished one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

from precc.graph.errors import ModelError
from precc.graph.headers import open_header
from precc_converter.conversion.configuration import CONFIG, DIGEST

STATE = ".precc-conversion"

_NOTE = "This folder is unfinished: run the same conversion again to go on, or remove it."
_REMOVE = "run that one to its end, or remove the folder"

Said: TypeAlias = tuple[str, str]
"""What differs, and what to do."""


def state_text(facts: Mapping[str, object]) -> str:
    """The content of the mark: everything that the bytes depend on."""
    return json.dumps({"note": _NOTE, **facts}, indent=1) + "\n"


def contract_of(folder: Path, inside: Sequence[str]) -> str | None:
    """The digest of the contract that a folder is the finished conversion for; None for any other folder."""
    first = next((name for name in inside if name.endswith(".safetensors")), None)
    if first is None or CONFIG not in inside:
        return None
    try:
        _, metadata = open_header(folder / first)
    except ModelError:
        return None
    return str(metadata[DIGEST]) if DIGEST in metadata else None


def first_difference(text: str, facts: Mapping[str, object]) -> Said:
    """How the conversion of a mark differs from this one."""
    try:
        held = json.loads(text)
        key = next(key for key, fact in facts.items() if held.get(key) != fact)
        return _WORDS[key](held[key], facts[key])
    except (ValueError, AttributeError, LookupError, TypeError, StopIteration):
        return f"{STATE} is not readable", "remove the folder"


def _of_version(held: Any, now: Any) -> Said:
    return f"precc {held} began it, this is precc {now}", f"go on with precc {held}, or remove the folder"


def _of_contract(held: Any, now: Any) -> Said:
    return f"its contract is {held[:12]}, not {now[:12]}", _REMOVE


def _of_plan(held: Any, now: Any) -> Said:
    return "this precc writes tensors of the same contract otherwise", "remove the folder, and convert anew"


def _of_size(held: Any, now: Any) -> Said:
    return f"its max_shard_size is {held}, not {now}", f"give --max-shard-size {held}, or remove the folder"


def _of_source(held: Any, now: Any) -> Said:
    """Which shard of the source is another than when it began, in size or in time, the rest being the same."""
    if absent := [*(held.keys() - now.keys()), *(now.keys() - held.keys())]:
        where = "is no more" if absent[0] in held else "was not"
        return f"`{absent[0]}` {where} among the shards of its source", _REMOVE
    name = next(name for name in held if held[name] != now[name])
    (size, time), (size_now, time_now) = held[name], now[name]
    if size != size_now:
        what = f"the shard `{name}` of its source had {size:,} bytes, and has {size_now:,}"
        return what, "put the file back that it began with, or remove the folder and convert anew"
    what = f"the shard `{name}` of its source was changed on {_clock(time)}, and again on {_clock(time_now)}"
    seconds = f"{time // 10**9}.{time % 10**9:09}"
    return what, f"if its bytes are the same, `touch -d @{seconds} {name}` lets it go on; else remove the folder"


_WORDS: dict[str, Callable[[Any, Any], Said]] = {
    "precc": _of_version,
    "contract": _of_contract,
    "plan": _of_plan,
    "source": _of_source,
    "max_shard_size": _of_size,
}
"""Each of the facts in a mark → what is said where it differs."""


def _clock(nanoseconds: int) -> str:
    return str(datetime.fromtimestamp(nanoseconds // 10**9).astimezone())
