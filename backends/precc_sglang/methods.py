"""Which quantization method of SGLang a contract needs: one choice for the process, by the families that occur."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

from precc.contract import Contract, Entry
from precc.records import record
from precc.syntax.words import Role
from precc_sglang.families import (
    FP8_BLOCK,
    FP8_CHANNEL,
    FP8_TENSOR,
    INT4,
    MXFP4,
    MXFP4_WEIGHTS,
    MXFP8,
    NVFP4_STATIC,
    NVFP4_TOKEN,
    NVFP4_WEIGHTS,
    UNQUANTIZED,
    Family,
    family_of,
    is_mxfp4,
    is_w4a4,
    mixable,
)
from precc_sglang.model_class import ModelClass
from precc_sglang.names import Kind, Module, class_of, module_of
from precc_sglang.versions import Release, release_of


@record
class Method:
    """One quantization method: what `--quantization` calls it, and the method and algorithm of the config."""

    argument: str
    quant_method: str
    quant_algo: str | None = None


NONE = Method("", "")
MIXED = Method("modelopt_mixed", "modelopt_mixed", "MIXED_PRECISION")
"""Named outright: detection takes a mix without NVFP4 for `w4afp8`."""

HYBRID = Method("fp8", "fp8", "MIXED_PRECISION")
"""Block FP8 with NVFP4 experts, as DeepSeek-V4 needs it: some of its weights are in FP8 under `fp8` alone."""

PACKED = Method("compressed-tensors", "compressed-tensors")
"""What compressed-tensors packs: integers, FP8 in channels; MXFP4 for a class that loads each expert by itself."""

ALONE: dict[str, Method] = {
    MXFP8.name: Method("mxfp8", "mxfp8"),
    FP8_BLOCK.name: Method("fp8", "fp8"),
    FP8_TENSOR.name: Method("modelopt_fp8", "modelopt", "FP8"),
    FP8_CHANNEL.name: PACKED,
    NVFP4_TOKEN.name: Method("modelopt_fp4", "modelopt", "NVFP4"),
    NVFP4_STATIC.name: Method("modelopt_fp4", "modelopt", "NVFP4"),
    NVFP4_WEIGHTS.name: Method("modelopt_fp4", "modelopt", "W4A16_NVFP4"),
    INT4.name: PACKED,
    MXFP4_WEIGHTS.name: Method("mxfp4", "mxfp4"),
    MXFP4.name: Method("mxfp4", "mxfp4"),
}
"""The method when one family stands beside unquantized tensors only; a mix of one, where a version lacks it."""


def choose(families: frozenset[Family], release: Release) -> Method | None:
    """This is the method for the quantized families of a contract; None where no method serves them together."""
    if not families:
        return NONE
    if len(families) == 1:
        alone = ALONE[next(iter(families)).name]
        if alone.argument != "modelopt_fp4" or alone.quant_algo in release.modelopt_fp4:
            return alone
    return MIXED if families <= mixable(release) else None


def quantized_families(entries: Iterable[Entry]) -> frozenset[Family]:
    """The families that occur, unquantized tensors and decisions without a family left aside."""
    found = {family_of(decision) for decision in {entry.decision for entry in entries}}
    return frozenset(family for family in found if family is not None and family is not UNQUANTIZED)


GATED = frozenset({"gate", "gate_up"})
"""The parts of tensors that only experts with a gate have."""


@record
class Choice:
    """A contract as SGLang will build it: the method, the model class, and each module with its entries."""

    method: Method
    built: ModelClass
    modules: dict[Module, list[Entry]]

    def is_gated(self, module: Module) -> bool:
        """Whether an expert layer's experts have a gate beside up and down."""
        return any(entry.tensor.part in GATED for entry in self.modules[module])

    def families(self) -> Iterator[tuple[Module, Family]]:
        """Each module with the family of its first entry (rules make sure that the others agree)."""
        for module, entries in self.modules.items():
            yield module, family_of(entries[0].decision) or UNQUANTIZED

    def entries(self, *kinds: Kind) -> Iterator[tuple[Module, Entry, Family | None]]:
        """The GEMM weights in modules of some kinds (of all, without), each with its module and family."""
        for module, entries in self.modules.items():
            if not kinds or module.kind in kinds:
                yield from ((module, entry, family_of(entry.decision)) for entry in entries)


def four_bit_experts(contract: Contract) -> frozenset[Family]:
    """The families of experts in four bits that a class has beside block FP8, and beside nothing else.

    One of NVFP4, one of MXFP4, or both, each with one kind of inputs. Empty for any other contract, and for a class
    that has no such experts.
    """
    built = class_of(contract.model, "fp8")
    four_bits = quantized_families(contract.entries) - {FP8_BLOCK}
    if built is None or not built.fp8_beside_fp4 or not all(map(_has_four_bits, four_bits)):
        return frozenset()
    alike = len([*filter(is_w4a4, four_bits)]) <= 1 and len([*filter(is_mxfp4, four_bits)]) <= 1
    low = (entry for entry in contract.quantized() if family_of(entry.decision) in four_bits)
    return four_bits if alike and all(entry.tensor.role is Role.ROUTED_EXPERTS for entry in low) else frozenset()


def _has_four_bits(family: Family) -> bool:
    return is_w4a4(family) or is_mxfp4(family)


def _beside_fp8(method: Method, four_bits: frozenset[Family]) -> Method:
    """The method where experts in four bits stand beside block FP8; with NVFP4 alone it may be ModelOpt's."""
    if method is MIXED and any(map(is_w4a4, four_bits)):
        return HYBRID
    return ALONE[FP8_BLOCK.name] if any(map(is_mxfp4, four_bits)) else method


@lru_cache(maxsize=1)
def choice_of(contract: Contract) -> Choice | None:
    """How SGLang builds a contract's model; None for an architecture that is unknown, or is in the stated version.

    A set of families without a method is taken for a mix, which a rule refuses.
    """
    release = release_of(contract.rollout)
    method = choose(quantized_families(contract.entries), release) or MIXED
    built = class_of(contract.model, method.argument)
    if built is None or contract.model.architecture in release.otherwise:
        return None
    if method is ALONE[MXFP4_WEIGHTS.name] and built.mxfp4 == "packed":
        method, built = PACKED, class_of(contract.model, PACKED.argument) or built
    method = _beside_fp8(method, four_bit_experts(contract))
    built = class_of(contract.model, method.argument) or built
    modules: dict[Module, list[Entry]] = {}
    for entry in contract.entries:
        module = module_of(entry.tensor, built)
        if module is not None:
            modules.setdefault(module, []).append(entry)
    return Choice(method, built, modules)
