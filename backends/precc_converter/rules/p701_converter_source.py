"""A source that the converter cannot read.

The converter starts from BF16, FP16 or FP32 weights, or from FP8 ones with a scale for each 128×128
block (as DeepSeek publishes them), which it dequantizes exactly. A checkpoint whose weights are already
packed in four bits, or in FP8 with other blocks, has lost what another format would need; converting it
would add one rounding to another and agree with no trainer.

Give the original checkpoint as `--model`: most publishers have a BF16 one beside the quantized one.
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract
from precc.diagnostics import Diagnostic, Severity
from precc.graph.model import Tensor
from precc_converter.refusal import refuse
from precc_converter.written import SOURCE_BLOCK, SOURCE_DTYPES

CODE = "P701"
NAME = "converter-source"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding over all tensors that are stored in a form that is not read."""
    unread = [entry for entry in contract.entries if not _is_read(entry.tensor)]
    if unread:
        tensor = unread[0].tensor
        blocks = f" in {tensor.stored_block[0]}×{tensor.stored_block[1]} blocks" if tensor.stored_block else ""
        yield refuse(
            unread,
            f"cannot read weights stored as {tensor.dtype}{blocks}",
            help="give the unquantized checkpoint, or one in FP8 with 128×128 blocks",
        )


def _is_read(tensor: Tensor) -> bool:
    in_blocks = tensor.dtype == "fp8"
    return tensor.dtype in SOURCE_DTYPES and tensor.stored_block == (SOURCE_BLOCK if in_blocks else None)
