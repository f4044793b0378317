"""One step's export: buckets of the trainer's tensors in, the checkpoint's tensors out."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Self

from torch import Tensor, strided
from torch.nn import Parameter

from precc_converter.conversion.group import outputs_of
from precc_converter.live.evidence import EvidenceLog, engine_versions
from precc_converter.live.fingerprint import Named, combined, pairs, tensor_digest
from precc_converter.live.inbox import Inbox
from precc_converter.live.refusals import MissingTensors, SessionFailed, WrongTensor

if TYPE_CHECKING:
    from precc_converter.live.exporter import LiveExporter


class Session:
    """What `LiveExporter.session` opens, as a context. Leaving it checks that everything came and was taken, and enters
    the step in the evidence log; so nothing is taken before it is entered.

    `tensors` and `bytes` count what has been made for the server. `open_groups` and `open_bytes` are what waits for
    the rest of its group: all that a session holds.
    """

    def __init__(self, exporter: LiveExporter, step: int, evidence: EvidenceLog | None) -> None:
        self.step = step
        self.contract = exporter.contract.digest
        self.tensors = 0
        self.bytes = 0
        self._exporter = exporter
        self._evidence = evidence
        self._inbox = Inbox(exporter.arrivals)
        self._digests: dict[str, bytes] = {}
        self._failed = ""
        self._entered = False

    def __enter__(self) -> Self:
        if self._evidence is not None:
            self._evidence.check()
        self._entered = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._finish()
        self._failed = self._failed or "it ended with an error"

    @property
    def weight_version(self) -> str:
        """What a server can carry and show as its `weight_version`: the step and the contract's digest."""
        return f"{self.step}:{self.contract}"

    @property
    def open_groups(self) -> int:
        """How many groups wait for tensors."""
        return self._inbox.groups

    @property
    def open_bytes(self) -> int:
        """What they hold."""
        return self._inbox.bytes

    @property
    def fingerprint(self) -> str:
        """The fingerprint of all that was yielded. Only a session with an evidence log keeps it: it reads each byte."""
        if self._evidence is None:
            raise SessionFailed("a session without an evidence log computes no fingerprint; give it `evidence`")
        return combined(self._digests)

    def add(self, bucket: Named) -> Iterator[tuple[str, Tensor]]:
        """This takes some of the trainer's tensors and yields every tensor of each group that they complete.

        Names are the checkpoint's or Megatron-Core's, in any order. What is yielded may lie in the bucket's own
        memory; after the last one, that memory may be used again. Take all of them: a session whose iteration was
        left fails. Raises UnknownName, WrongShape, WrongTensor, CameTwice, NotFiniteTensor, all of them ValueError, and
        SessionFailed outside `with`.
        """
        for group in self._groups(bucket):
            yield from group

    def batches(self, bucket: Named, max_bytes: int) -> Iterator[list[tuple[str, Tensor]]]:
        """The same in lists that a server takes in one call each: of at most `max_bytes`, unless one group is larger.

        No list ends within a group. A server's loader may drop the part of a fused layer, or a weight without its
        scale, that comes in a call without the rest.
        """
        batch: list[tuple[str, Tensor]] = []
        size = 0
        for group in self._groups(bucket):
            more = sum(tensor.nbytes for _, tensor in group)
            if batch and size + more > max_bytes:
                yield batch
                batch, size = [], 0
            batch += group
            size += more
        if batch:
            yield batch

    def _groups(self, bucket: Named) -> Iterator[list[tuple[str, Tensor]]]:
        if not self._entered:
            raise SessionFailed("this session was not entered, and would never be checked: open it by `with`")
        if self._failed:
            raise SessionFailed(f"this session is over: {self._failed}; open another and export everything again")
        self._failed = "the tensors of a bucket were not all taken"
        try:
            for name, tensor in pairs(bucket):
                yield from self._completed(name, tensor)
            self._inbox.keep()
        except ValueError as refused:
            self._failed = str(refused)
            raise
        self._failed = ""

    def _completed(self, name: str, tensor: Tensor) -> Iterator[list[tuple[str, Tensor]]]:
        _check_plain(name, tensor)
        for stored, value in self._exporter.in_checkpoint(name, tensor.detach()):
            complete = self._inbox.put(stored, value)
            if complete is not None:
                group, sources = complete
                made = (item for unit in group.units for item in outputs_of(unit, sources).items())
                yield [self._counted(*item) for item in made]

    def _counted(self, name: str, tensor: Tensor) -> tuple[str, Tensor]:
        tensor = tensor.contiguous()
        self.tensors += 1
        self.bytes += tensor.nbytes
        if self._evidence is not None:
            self._digests[name] = tensor_digest(name, tensor)
        return name, tensor

    def require_complete(self) -> None:
        """Call this before the server goes on with what it has. Raises SessionFailed, MissingTensors."""
        if self._failed:
            raise SessionFailed(f"this session did not export everything: {self._failed}")
        missing = self._exporter.arrivals.missing(self._inbox.arrived)
        if missing:
            self._failed = "tensors are missing"
            raise MissingTensors(self._exporter.describe_missing(missing, self.open_groups), missing)

    def _finish(self) -> None:
        self.require_complete()
        self._failed = "it has ended"
        if self._evidence is not None:
            self._evidence.append(self._facts())

    def _facts(self) -> dict[str, object]:
        return {
            "step": self.step,
            "contract": self.contract,
            "weight_version": self.weight_version,
            "without": sorted(self._exporter.without),
            "tensors": self.tensors,
            "bytes": self.bytes,
            "sha256": self.fingerprint,
            "engines": engine_versions(),
        }


def _check_plain(name: object, tensor: object) -> None:
    """Whether what a trainer hands over is a tensor with values under a name. Raises WrongTensor."""
    if not isinstance(name, str):
        raise WrongTensor(f"a tensor came under {name!r}, a {type(name).__name__}; its name is a text")
    if not isinstance(tensor, Tensor) or type(tensor) not in (Tensor, Parameter):
        raise WrongTensor(
            f"`{name}` is a {type(tensor).__name__}, not a plain tensor; hand over its whole value "
            "(a DTensor's `full_tensor()`, a QuantizedTensor's `dequantize()`)"
        )
    if tensor.is_meta:
        raise WrongTensor(f"`{name}` is on the meta device and holds no values; hand over the weight that is trained")
    if tensor.layout is not strided:
        raise WrongTensor(f"`{name}` is stored as {tensor.layout}; hand it over dense (`to_dense()`)")
