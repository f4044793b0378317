"""What a number format is: its element, its blocks and its scales, as types without torch.

`FORMATS` is the table of every format the language can name; `Quantization` and `Decision` are what a policy
resolves to. The figures are those of the OCP Microscaling specification v1.0 (MX formats), of
TransformerEngine's NVFP4 recipe, and of the DeepSeek-V3 report (128×128 blocks).
"""

from precc.formats.decision import (
    BF16,
    Decision,
    FourOverSix,
    Quantization,
    kept,
)
from precc.formats.storage import StoredPart, stored_bits, stored_parts
from precc.formats.table import FORMATS, SCOPES, Format

__all__ = [
    "BF16",
    "FORMATS",
    "SCOPES",
    "Decision",
    "Format",
    "FourOverSix",
    "Quantization",
    "StoredPart",
    "kept",
    "stored_bits",
    "stored_parts",
]
