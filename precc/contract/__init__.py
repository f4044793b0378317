"""The contract: the resolved policy, total over a model's tensors, ordered, canonical and hashed."""

from precc.contract.contract import Contract
from precc.contract.entry import Cause, Entry
from precc.contract.layout import Layout, RolloutLayout, TrainLayout
from precc.contract.serial import contract_from_json, contract_to_json, load_contract

__all__ = [
    "Cause",
    "Contract",
    "Entry",
    "Layout",
    "RolloutLayout",
    "TrainLayout",
    "contract_from_json",
    "contract_to_json",
    "load_contract",
]
