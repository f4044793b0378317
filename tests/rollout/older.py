"""The older SGLang that is modelled: where its own code is installed, and contracts that are compiled for it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from proof.subjects import small_model

from precc.contract import Contract
from precc.front import read_policy
from precc.pipeline import Settings
from precc.resolve.bind import bind
from precc.source import SourceFile

VERSION = "0.5.16"
FOLDER = Path(sys.prefix) / "engines" / f"sglang-{VERSION}"


def older_folder() -> str:
    """The folder with the older SGLang. Fails where it is missing."""
    if not (FOLDER / "sglang").is_dir():
        pytest.fail(f"SGLang {VERSION} is not in {FOLDER}: `make test` installs it")
    return str(FOLDER)


def contract_of(policy: str, family: str, version: str, layout: str = "") -> Contract:
    """The contract of a policy text on a small model, for a version of SGLang, if one is given.

    Whatever the rules say of it.
    """
    read, found = read_policy(SourceFile("p.prec", policy))
    assert not [finding.message for finding in found if finding.is_error]
    words = f"sglang={version}" if version else ""
    settings = dict(word.split("=", 1) for word in f"{words} {layout}".split())
    return Settings(rollout=settings).apply(bind(read, small_model(family)), ("sglang",)).contract
