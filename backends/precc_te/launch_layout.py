"""The parallel sizes of a launch line: whether the artifacts would be the same under them.

A layout takes no part in a digest, yet a recipe file numbers layers within a stage, and a sharded weight has a scale
of its own. What the line runs is compiled again, and compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from precc import records
from precc.backend import Unsupported
from precc.contract import Contract, TrainLayout
from precc.diagnostics import Diagnostic, error
from precc_te.emission import emit
from precc_te.rules import p503_sharded_outer_scale, p506_unaddressable_layer

CODE = "P511"

SIZES: dict[str, str] = {
    "--tensor-model-parallel-size": "tp",
    "--pipeline-model-parallel-size": "pp",
    "--num-virtual-stages-per-pipeline-rank": "vpp",
    "--expert-model-parallel-size": "ep",
    "--expert-tensor-parallel-size": "etp",
}
"""Megatron's sizes by the keys of `train:`: 1 unless given, but experts are split as everything else is."""

UNEQUAL_STAGES: frozenset[str] = frozenset(
    {
        "--pipeline-model-parallel-layout",
        "--decoder-first-pipeline-num-layers",
        "--decoder-last-pipeline-num-layers",
        "--account-for-embedding-in-pipeline-split",
        "--account-for-loss-in-pipeline-split",
        "--num-layers-per-virtual-pipeline-stage",
    }
)
"""Arguments under which a stage holds other layers than an equal share in one piece."""


def check_layout(contract: Contract, emitted: Mapping[str, str], given: Mapping[str, str]) -> Iterator[Diagnostic]:
    """One finding (P511) where the contract could not be run, or not from these files, under a line's sizes.

    `given` are the arguments of the line with their values, `emitted` the artifacts, path → text.
    """
    other = laid_out(contract, given)
    if other.train == records.replace(contract.train, stated=True):
        return
    sizes = " ".join(f"{key}={getattr(other.train, key)}" for key in SIZES.values())
    refusal = next(_refusals(other), None)
    if refusal is not None:
        help = f"launch with the sizes that it was compiled for; or {refusal.help}"
        yield error(CODE, f"the line trains with {sizes}; there, {refusal.message}", help=help)
    elif not _same(other, emitted):
        problem = f"the recipes would be others: layer numbers in these are those of pp={contract.train.pp}"
        help = f'compile with `--train "{sizes}"`, or launch with the sizes that it was compiled for'
        yield error(CODE, f"the line trains with {sizes}; there, {problem}", help=help)


def laid_out(contract: Contract, given: Mapping[str, str]) -> Contract:
    """The contract under the sizes of a line's arguments."""
    return replace(contract, train=layout_of(contract.train, given))


def _refusals(other: Contract) -> Iterator[Diagnostic]:
    for rule in (p503_sharded_outer_scale, p506_unaddressable_layer):
        yield from (finding for finding in rule.check(other) if finding.is_error)


def _same(other: Contract, emitted: Mapping[str, str]) -> bool:
    try:
        return {artifact.path: artifact.text for artifact in emit(other)} == dict(emitted)
    except Unsupported:
        return False


def layout_of(train: TrainLayout, given: Mapping[str, str]) -> TrainLayout:
    """A layout with the sizes of a line. Unequal stages number layers as virtual ones do: no recipe file can say it."""
    words = {key: given.get(argument, "1") for argument, key in SIZES.items()}
    words["etp"] = given.get("--expert-tensor-parallel-size", words["tp"])
    if UNEQUAL_STAGES & given.keys() and words["vpp"] == "1":
        words["vpp"] = "2"
    return train.with_settings({key: word for key, word in words.items() if word.isdecimal() and int(word)})
