"""What changes with the names, where a format is stored in those of another tool than the contract's."""

from __future__ import annotations

NOTES = {
    ("nvfp4", "compressed-tensors"): "its `weight_global_scale` is the reciprocal of `weight_scale_2`",
    ("mxfp8", "ModelOpt"): "SGLang renames such scales only when it loads pure `mxfp8` from disk",
    ("fp8_block", "compressed-tensors"): "SGLang's `fp8` method asks for `weight_scale_inv`",
}
"""Format and tool, as `precc.graph.layouts` has them → what to mind."""
