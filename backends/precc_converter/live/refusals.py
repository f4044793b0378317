"""What the live export refuses; each is a ValueError whose message says which tensor, what is wrong and what to do."""

from __future__ import annotations

from collections.abc import Sequence


class CameTwice(ValueError):
    """A tensor that this session has had already, under whatever name."""


class WrongTensor(ValueError):
    """A tensor of another dtype than the contract was compiled for, one that is not whole and plain, or none at all."""


class NotFiniteTensor(ValueError):
    """A tensor that holds NaN or Inf."""


class MissingTensors(ValueError):
    """The end of a session that has not had everything; `names` are the checkpoint's, all of them."""

    def __init__(self, message: str, names: Sequence[str]) -> None:
        super().__init__(message)
        self.names = tuple(names)


class SessionFailed(RuntimeError):
    """A session that goes on after something was refused in it, or after its tensors were not all taken."""
