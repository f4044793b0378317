"""A source that the converter cannot read.

The converter starts from BF16, FP16 or FP32 weights, from FP8 ones with a scale for each 128×128 block (as DeepSeek
publishes them), and from MXFP4 ones as gpt-oss stores them; it dequantizes both exactly. A checkpoint whose weights are
packed otherwise, or in FP8 with other blocks, has lost what another format would need; converting it would add one
rounding to another and agree with no trainer.

Give the original checkpoint as `--model`: most publishers have a BF16 one beside the quantized one.
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract
from precc.contract.wording import listed
from precc.diagnostics import Diagnostic, Severity
from precc.graph.forms import Form
from precc.graph.model import Tensor
from precc_converter.refusal import refuse
from precc_converter.written import SOURCE_BLOCKS, SOURCE_DTYPES

CODE = "P701"
NAME = "converter-source"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding over all tensors that are stored in a form that is not read."""
    unread = [entry for entry in contract.entries if not _is_read(entry.tensor)]
    if unread:
        yield refuse(
            unread,
            f"cannot read weights stored as {_shown(unread[0].tensor.form)}",
            help="give the unquantized checkpoint, or one in FP8 with 128×128 blocks",
        )


def _is_read(tensor: Tensor) -> bool:
    dtype = tensor.form.dtype
    return dtype in SOURCE_DTYPES and tensor.form == Form(dtype, SOURCE_BLOCKS.get(dtype))


def _shown(form: Form) -> str:
    """A form, and what is unlike the usual of it."""
    words = f", as {listed([f'`{word}`' for word in form.words])}" if form.words else ""
    return f"{form}{words}{', each expert by itself' if form.apart else ''}"
