"""The live export: a trainer's tensors, as they come, to exactly what the converter would write of them."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from precc.contract import Contract, load_contract
from precc.contract.serial import ContractError
from precc_converter.live.arrivals import arrivals_of
from precc_converter.live.evidence import EvidenceLog
from precc_converter.live.session import Session
from precc_converter.trainer import TrainerNames, UnknownName, UnmappedTensor
from precc_converter.trainer.stacks import read_slice
from precc_converter.trainer.values import to_huggingface

if TYPE_CHECKING:
    from torch import Tensor


class LiveExporter:
    """Exports a trainer's weights under one contract, step after step.

    `contract` is a contract, or where a `contract.json` is. `vocabulary_rows` is the trainer's vocabulary if it pads
    it. `without` are parts of the model that the trainer does not have: `mtp`, `vision`, `audio`; the server keeps
    what it loaded of them.

    Where the contract was compiled for an FP8 checkpoint, the trainer's BF16 weights are converted as those of a
    BF16 checkpoint are. Raises ContractError for a contract that cannot be read, KeyError for one with a format that
    the converter lacks, ValueError for rows or parts that the model does not have.
    """

    def __init__(
        self,
        contract: Contract | str | os.PathLike[str],
        *,
        vocabulary_rows: int | None = None,
        without: Collection[str] = (),
    ) -> None:
        self.contract = contract if isinstance(contract, Contract) else _load(contract)
        self.without = frozenset(without)
        self.arrivals = arrivals_of(self.contract, self.without)
        try:
            self._why = ""
            self._names: TrainerNames | None = TrainerNames(self.contract.model, vocabulary_rows=vocabulary_rows)
        except UnmappedTensor as unmapped:
            self._names, self._why = None, str(unmapped)

    def session(self, *, step: int, evidence: str | os.PathLike[str] | None = None) -> Session:
        """This opens the export of one step; `evidence` is the log that a complete one is entered in.

        With a log, every exported byte is hashed on the host. Raises ValueError for a step that is no number from 0.
        """
        if not isinstance(step, int) or isinstance(step, bool) or step < 0:
            raise ValueError(f"step is {step!r}: give the number of the trainer's step, from 0")
        return Session(self, step, None if evidence is None else EvidenceLog(Path(evidence)))

    def in_checkpoint(self, name: str, tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
        """This is the trainer's tensor under the checkpoint's names. Raises UnknownName, WrongShape."""
        if self._promised(name):
            yield name, tensor
            return
        place = self._names.find(name) if self._names is not None else None
        known = [] if place is None else [pair for pair in to_huggingface(place, tensor) if self._promised(pair[0])]
        if not known:
            raise self._unknown(name)
        yield from known

    def _promised(self, name: str) -> bool:
        return read_slice(name)[0] in self.arrivals.sources

    def describe_missing(self, names: Sequence[str], waiting: int) -> str:
        """What is said at the end of a session that these tensors did not come to."""
        first = ", ".join(self._described(name) for name in names[:3])
        more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
        held = f"; groups that still wait for some of them: {waiting:,}" if waiting else ""
        return f"{len(names):,} of {len(self.arrivals.sources):,} tensors never came: {first}{more}{held}"

    def _described(self, name: str) -> str:
        place = self._names.find_stored(name) if self._names is not None else None
        if self._names is None or place is None:
            return f"`{name}`"
        return f"`{name}` (in Megatron-Core `{self._names.written(place)}`)"

    def _unknown(self, name: str) -> UnknownName:
        if self._names is None:
            why = f", and none is read by the trainer's names: {self._why}; hand it over by the checkpoint's"
            return UnknownName(name, (), why)
        if self._names.find(name) or self._names.find_stored(name):
            parts = ", ".join(sorted(self.without))
            return UnknownName(name, (), f": it belongs to what this exporter leaves out ({parts}); leave it out, too")
        return self._names.unknown(name)


def _load(contract: str | os.PathLike[str]) -> Contract:
    """The contract in a folder or a file. Raises ContractError."""
    try:
        return load_contract(Path(contract))
    except OSError as problem:
        give = "give a Contract, the folder that `precc compile -o` wrote, or the contract.json in it"
        raise ContractError(f"there is no contract at {problem.filename}: {problem.strerror}; {give}") from None
