"""Which contract each file names: all must name the one that they are read for.

Comments other than the one with the digest are free, as is the step of `weight-version`, which a trainer counts up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from precc.backend import named_contract
from precc_sglang.config import DIGEST_KEY
from precc_sglang.paths import CONFIG_PATH, ENVIRONMENT_PATH, LEGACY_PATH, SERVER_PATH, SHELL_PATH
from precc_sglang.refusal import unreadable


def check_digests(named: Mapping[str, str], digest: str) -> None:
    """This refuses files of another contract (P502). `named` is what `named_digests` found. Raises Unsupported."""
    for place, found in named.items():
        if found != digest:
            says = f"belongs to another contract: it names {_short(found)}" if found else "names no contract"
            raise unreadable(f"{place} {says}; this contract is {_short(digest)}", "compile again")


def named_digests(
    texts: Mapping[str, str], objects: Mapping[str, dict[str, Any] | None], arguments: Mapping[Any, Any]
) -> dict[str, str]:
    """Every place that names a contract → what it names, empty for nothing."""
    return dict(_named(texts, objects, arguments))


def _named(
    texts: Mapping[str, str], objects: Mapping[str, dict[str, Any] | None], arguments: Mapping[Any, Any]
) -> Iterator[tuple[str, str]]:
    for path in (SERVER_PATH, SHELL_PATH):
        yield path, named_contract(texts[path])
    version = re.fullmatch(r"\d+:(.+)", str(arguments.get("weight-version", "")))
    yield f"{SERVER_PATH}, weight-version", version[1] if version else ""
    for path, key in ((CONFIG_PATH, DIGEST_KEY), (LEGACY_PATH, DIGEST_KEY), (ENVIRONMENT_PATH, "digest")):
        content = objects.get(path)
        if content is not None:
            yield path, str(content.get(key, ""))


def _short(digest: str) -> str:
    return digest if len(digest) <= 12 else f"{digest[:12]}…"
