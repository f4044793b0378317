"""The formats that Miles stores, one row each: the converter's tool, the trainer's and the server's words for it.

A run has one of them: a converter writes one format, Megatron takes FP8 or FP4, and SGLang one method.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from precc.contract import Contract
from precc.formats import Decision, Quantization
from precc.records import replace


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Form:
    """One format: `tools/{tool}` with its fixed options writes it.

    `divisor` must divide the contraction axis. `trainer` are Megatron's arguments for it and `recipe` the field and
    value of a module's recipe; both empty where TransformerEngine does not multiply in it. `method` is what
    `--sglang-quantization` calls it, and `runner` the expert backend that runs it as decided. `counts` and
    `exceptions` say whether converter and live export can leave out first and last layers, and names.
    """

    name: str
    tool: str
    method: str
    weight: Quantization
    input: Quantization
    options: tuple[str, ...] = ()
    divisor: int = 1
    trainer: tuple[str, ...] = ()
    recipe: tuple[str, str] = ("", "")
    runner: str = ""
    counts: bool = False
    exceptions: bool = False
    hopper: bool = False
    """Whether it is of Hopper, and no other GPU; otherwise of Blackwell."""

    def __repr__(self) -> str:
        return self.name


NVFP4 = Form(
    "nvfp4",
    "convert_hf_to_nvfp4.py",
    "modelopt_fp4",
    Quantization("nvfp4", (1, 16), "e4m3", "per_tensor"),
    Quantization("nvfp4", (1, 16), "e4m3", "per_token"),
    divisor=16,
    trainer=("--fp4-format e2m1", "--fp4-recipe nvfp4"),
    recipe=("fp4_quantization_recipe", "nvfp4"),
    runner="flashinfer_trtllm_routed",
    counts=True,
    exceptions=True,
)
MXFP8 = Form(
    "mxfp8",
    "convert_hf_to_mxfp8.py",
    "mxfp8",
    Quantization("mxfp8", (1, 32), "e8m0"),
    Quantization("mxfp8", (1, 32), "e8m0"),
    divisor=32,
    trainer=("--fp8-format e4m3", "--fp8-recipe mxfp8"),
    recipe=("fp8_quantization_recipe", "mxfp8"),
    runner="flashinfer_trtllm_routed",
    counts=True,
    exceptions=True,
)
FP8_BLOCK = Form(
    "fp8_block",
    "convert_hf_to_fp8.py",
    "fp8",
    Quantization("fp8_block", (128, 128), "fp32"),
    Quantization("fp8_block", (1, 128), "fp32"),
    options=("--strategy block", "--block-size 128 128"),
    trainer=("--fp8-format e4m3", "--fp8-recipe blockwise"),
    recipe=("fp8_quantization_recipe", "blockwise"),
    hopper=True,
)

FORMS: Mapping[str, Form] = {form.name: form for form in (NVFP4, MXFP8, FP8_BLOCK)}

TOOLS: Mapping[str, Form] = {form.tool: form for form in FORMS.values()}


_UNCARRIED: Mapping[str, str] = {
    "int4": "its trainer rounds every routed expert with FP32 scales, and the checkpoint has BF16 ones",
    "fp8": "its live export takes a per-channel checkpoint for INT4, and scales per tensor what its converter does not",
}


def why_not(decision: Decision) -> str:
    """Why Miles does not carry a decision through its stages; empty where it does."""
    weight, operand = decision.weight, decision.input
    if weight.format not in FORMS:
        return _UNCARRIED.get(weight.format, f"no converter of it writes {weight.format} weights")
    form = FORMS[weight.format]
    if replace(weight, four_over_six=None) != form.weight:
        return f"its converter writes {form.weight} weights"
    if operand is None or replace(operand, four_over_six=None) != form.input:
        return f"its server runs {form.name} weights with {form.input} inputs"
    return ""


def form_of(contract: Contract) -> Form | None:
    """The format of a contract's run: the commonest of those that Miles has; None where nothing is quantized."""
    counted: Counter[str] = Counter()
    for entry in contract.quantized():
        if not why_not(entry.decision):
            counted[entry.decision.weight.format] += entry.tensor.count
    return FORMS[counted.most_common(1)[0][0]] if counted else None
