"""What Miles' own functions answered, once, for five policies on four models; the rules here still answer so.

`process_file` of a converter, and the live export's `convert_to_hf` were called with the
emitted arguments and every weight of a model, without content. No tensor came out otherwise than here; the numbers are
what is left of that run (docs/miles.md).
"""

from __future__ import annotations

import pytest
from miles.support import compiled

from precc_miles.choosing import choose
from precc_miles.converter import listed
from precc_miles.stages import UNQUANTIZED

NVFP4 = "@routed_experts: nvfp4 per_token\nlayers[-15%:], @shared_experts?, @mla?: bf16\n"
MXFP8 = "default: mxfp8\nlayers[-15%:], @shared_experts?, @mla?, @indexer?: bf16\n"
FIRST = "default: mxfp8\n(@mtp)?: mxfp8\n@mla?, @indexer?, layers[:2]: bf16\n"
BLOCKS = "default: fp8_block scales fp32\ntrain: gpu=h200\n"
MIDDLE = "@routed_experts: nvfp4 per_token\n@shared_experts?: nvfp4 per_token\nlayers[5]: bf16\n"

RECORDED: tuple[tuple[str, str, int, int, int], ...] = (
    ("qwen3-30b-a3b", NVFP4, 15_360, 499, 15_360),
    ("qwen3-30b-a3b", MXFP8, 15_520, 283, 15_520),
    ("qwen3-30b-a3b", FIRST, 17_848, 253, 17_848),
    ("qwen3-30b-a3b", BLOCKS, 18_624, 243, 18_624),
    ("qwen3-30b-a3b", MIDDLE, 18_048, 868, 18_048),
    ("deepseek-v3.2", NVFP4, 36_864, 1_849, 36_864),
    ("deepseek-v3.2", MXFP8, 37_077, 857, 37_077),
    ("deepseek-v3.2", FIRST, 45_735, 639, 44_957),
    ("deepseek-v3.2", BLOCKS, 45_932, 561, 45_932),
    ("deepseek-v3.2", MIDDLE, 43_947, 2_427, 43_947),
    ("glm-4.5-air", NVFP4, 14_592, 924, 14_592),
    ("glm-4.5-air", MXFP8, 14_751, 326, 14_751),
    ("glm-4.5-air", FIRST, 17_595, 165, 17_204),
    ("glm-4.5-air", BLOCKS, 17_993, 336, 17_993),
    ("glm-4.5-air", MIDDLE, 17_028, 1_163, 17_028),
    ("qwen3-next-80b-a3b", NVFP4, 61_440, 2_174, 61_440),
    ("qwen3-next-80b-a3b", MXFP8, 61_570, 486, 61_480),
    ("qwen3-next-80b-a3b", FIRST, 72_487, 315, 70_842),
    ("qwen3-next-80b-a3b", BLOCKS, 75_657, 287, 75_499),
)
"""A model, a policy, and: tensors that the converter quantized, entries of its list, tensors that were exported so."""


@pytest.mark.parametrize("model, policy, converted, entries, exported", RECORDED)
def test_as_many_tensors_come_out_as_in_miles(
    model: str, policy: str, converted: int, entries: int, exported: int
) -> None:
    """Converter, list and live export; where two of these differ in Miles (D4, D5, D6), they do here."""
    contract = compiled(policy, model)
    run = choose(contract)
    assert run.conversion is not None
    pairs = list(zip(contract.tensors, run.stages(contract), strict=True))
    assert sum(tensor.count for tensor, staged in pairs if staged.converter != UNQUANTIZED) == converted
    assert sum(tensor.count for tensor, staged in pairs if staged.export != UNQUANTIZED) == exported
    assert len(listed(run.conversion, contract.model)) == entries
