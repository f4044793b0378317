"""Live export: from a trainer's memory to a rollout server's, in the bytes that the converter writes.

`exporter` is the entrance, `session` one step of it; the arithmetic is the converter's own.
"""

from precc_converter.live.exporter import LiveExporter
from precc_converter.live.fingerprint import fingerprint
from precc_converter.live.refusals import (
    CameTwice,
    MissingTensors,
    NotFiniteTensor,
    SessionFailed,
    WrongTensor,
)
from precc_converter.live.session import Session
from precc_converter.trainer import UnknownName
from precc_converter.trainer.values import WrongShape

__all__ = [
    "CameTwice",
    "LiveExporter",
    "MissingTensors",
    "NotFiniteTensor",
    "Session",
    "SessionFailed",
    "UnknownName",
    "WrongShape",
    "WrongTensor",
    "fingerprint",
]
