"""Run by itself: what transformers says that checkpoints of some configurations hold, without making a weight.

Reads `{name: config}` as JSON and answers `{name: {tensor: shape}}`: each model is built on the meta device, and the
library's own reverse mapping gives the names and shapes that it would save.
"""

from __future__ import annotations

import json
import sys
from typing import Any

MODEL_TYPES = {"kimi_k2": "deepseek_v3"}
"""Model types of remote code → those of the same structure in the library."""

CLASSES = {"KimiK25ForConditionalGeneration": "Kimi_K25ForConditionalGeneration"}
"""What publishers call a class → what the library does."""

LAYER_TYPES = ("full_attention", "sliding_attention")
MLP_LAYER_TYPES = ("dense", "sparse")
"""What the library calls a layer that a published configuration says 0 or 1 of."""


def tensors(config: dict[str, Any]) -> dict[str, list[int]]:
    """The names and shapes of a checkpoint that the library would save."""
    import torch
    import transformers
    from transformers.core_model_loading import revert_weight_conversion

    model_type, architecture = config["model_type"], config["architectures"][0]
    if "vt_hidden_size" in config.get("vision_config", {}):
        config["projection_hidden_size"] = config["vision_config"]["vt_hidden_size"]
    if model_type == "gemma3":
        config["vision_config"]["vision_use_head"] = False
    if model_type == "minimax_m3_vl":
        config["projector_hidden_size"] = config["vision_config"]["projection_dim"]
    if model_type == "mimo_v2_flash":
        config["layer_types"] = [LAYER_TYPES[slides] for slides in config["hybrid_layer_pattern"]]
        config["mlp_layer_types"] = [MLP_LAYER_TYPES[routes] for routes in config["moe_layer_freq"]]
    made = transformers.CONFIG_MAPPING[MODEL_TYPES.get(model_type, model_type)].from_dict(config)
    with torch.device("meta"):
        model = getattr(transformers, CLASSES.get(architecture, architecture))(made)
    saved = revert_weight_conversion(model, model.state_dict())
    return {name: list(tensor.shape) for name, tensor in saved.items()}


if __name__ == "__main__":
    json.dump({name: tensors(config) for name, config in json.load(sys.stdin).items()}, sys.stdout)
