"""A source that the converter cannot read.

The converter starts from BF16, FP16 or FP32 weights, and from low precision in which a number is a code times a scale:
FP8 with a scale for each 128×128 block, channel or tensor, MXFP8, MXFP4, NVFP4, and symmetric INT4 and INT8, in the
names of DeepSeek, ModelOpt, compressed-tensors and gpt-oss. It quantizes the dequantized numbers, and keeps codes and
scales that are what the contract decides already. Integers with zero points or in another order of columns, and the
packings of GPTQ and AWQ, stand for numbers that it does not compute.

Give the original checkpoint as `--model`: most publishers have a BF16 one beside the quantized one.
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract
from precc.contract.wording import listed
from precc.diagnostics import Diagnostic, Severity
from precc.graph.forms import Form
from precc_converter.refusal import refuse
from precc_converter.stored import is_read

CODE = "P701"
NAME = "converter-source"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding over all tensors that are stored in a form that is not read."""
    unread = [entry for entry in contract.entries if not is_read(entry.tensor)]
    if unread:
        yield refuse(
            unread,
            f"cannot read weights stored as {_shown(unread[0].tensor.form)}",
            help="give the unquantized checkpoint, or one whose weights are codes times scales",
        )


def _shown(form: Form) -> str:
    """A form, and what is unlike the usual of it."""
    words = f", as {listed([f'`{word}`' for word in form.words])}" if form.words else ""
    return f"{form}{words}{', each expert by itself' if form.apart else ''}"
