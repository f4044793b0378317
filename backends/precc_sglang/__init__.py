"""SGLang as a target: the checkpoint's quantization config, the server's arguments and its environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from precc.backend import Artifact, Reading
from precc.contract import Contract, Entry
from precc_sglang.emission import artifacts
from precc_sglang.methods import choice_of
from precc_sglang.names import module_of
from precc_sglang.reading import read_back
from precc_sglang.served import Served, decides
from precc_sglang.versions import ENGINES


class SGLang:
    """The backend `sglang`."""

    name = "sglang"
    engines: Mapping[str, tuple[str, ...]] = ENGINES
    rules = "precc_sglang.rules"

    def names(self, contract: Contract, entry: Entry) -> Mapping[str, str]:
        """The prefix under which SGLang's class asks for the tensor's quantization."""
        choice = choice_of(contract)
        module = None if choice is None else module_of(entry.tensor, choice.built)
        return {} if module is None else {"sglang": module.prefix}

    def emit(self, contract: Contract) -> tuple[Artifact, ...]:
        return tuple(artifacts(contract))

    def decides(self, contract: Contract) -> Sequence[Served]:
        return decides(contract)

    def read_back(self, contract: Contract, artifacts: Mapping[str, str]) -> Sequence[Reading]:
        return read_back(contract, artifacts)


backend = SGLang()

__all__ = ["SGLang", "backend"]
