"""The trainer's side of the names: Megatron-Core's parameters ↔ the checkpoint's tensors.

A `Parameter` says which tensors lie in a parameter of the trainer and how; `TrainerNames` finds it from either side.
Only `values` needs torch.
"""

from precc_converter.trainer.names import Place, TrainerNames, UnknownName
from precc_converter.trainer.parameters import Member, Parameter, parameters_of
from precc_converter.trainer.ranks import first_expert, first_layer, global_name
from precc_converter.trainer.slots import UnmappedTensor
from precc_converter.trainer.spelling import LATER_INNER, Spelling

__all__ = [
    "LATER_INNER",
    "Member",
    "Parameter",
    "Place",
    "Spelling",
    "TrainerNames",
    "UnknownName",
    "UnmappedTensor",
    "first_expert",
    "first_layer",
    "global_name",
    "parameters_of",
]
