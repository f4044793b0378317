"""What a worker calls by another name in each modelled release of SGLang: one module a release, behind one table."""

from __future__ import annotations

from argparse import ArgumentParser
from contextlib import AbstractContextManager
from importlib import import_module
from importlib.metadata import version
from typing import Any, Protocol, cast

BOOTS = {
    "0.5.23": "precc_sglang.upstream.boot",
    "0.5.16": "precc_sglang.upstream.boot_0_5_16",
}
"""By version, the module with a release's own names."""


class Boot(Protocol):
    """What a release's module holds."""

    def start(self) -> None:
        """This makes the process the only rank of a server."""

    def gpu(self, capability: int) -> AbstractContextManager[None]:
        """This pretends a GPU of a compute capability, times ten."""

    def merged(self, parser: ArgumentParser, words: list[str]) -> list[str]:
        """These words with what the file of `--config` stands for in front."""

    def in_force(self, arguments: Any) -> None:
        """This resolves a server's arguments, where they are not yet, and puts them in force for this process."""

    def current(self) -> Any:
        """The server's arguments that are in force in this process."""

    def building(self, kind: Any, settings: Any, config: Any) -> AbstractContextManager[None]:
        """While it lasts, a model class may be built on a CPU under a model's and a quantization configuration."""

    def load(self, model: Any, weights: Any) -> None:
        """This gives a model's loader its weights, (name, tensor) each, and does nothing with them afterwards."""

    def rank(self) -> tuple[str, ...]:
        """The arguments that make a server one rank, whatever its layout says."""


def boot() -> Boot:
    """This is the module for the SGLang that is installed here."""
    return cast(Boot, import_module(BOOTS[version("sglang")]))
