"""The same decisions by compressed-tensors: DeepSeek-V3 on the meta device, one `apply_quantization_config`.

Run as a process of its own; prints one JSON object: seconds of each part, how many linears it decided, and
the names of those that were quantized. The model is that of transformers with its stacked experts opened into
one linear a matrix, as a quantizer needs them, and with the multi-token-prediction layer as a 62nd layer.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

FACTS = Path(__file__).parents[2] / "precc/graph/models/deepseek-v3.json"

EXPERTS = r"re:.*\.mlp\.experts\.\d+\.(gate|up|down)_proj$"
KEPT = ["lm_head", r"re:.*\.layers\.(5[1-9]|6[01])\.", r"re:.*\.self_attn\.", r"re:.*\.mlp\.gate$"]
"""`nvfp4_rl` in the peer's words, as short as it can be said there: the fewer patterns, the faster it is."""

seconds: dict[str, tuple[float, float]] = {}


@contextmanager
def timed(part: str) -> Iterator[None]:
    """This adds the time of its block to `seconds`, on the wall and of CPU."""
    wall, cpu = perf_counter(), process_time()
    yield
    seconds[part] = perf_counter() - wall, process_time() - cpu


def build(torch: Any) -> Any:
    """DeepSeek-V3 without storage, one linear an expert's matrix."""
    import transformers

    facts = json.loads(FACTS.read_text())["config"]
    facts.pop("quantization_config")
    layers = facts["num_hidden_layers"] + facts.pop("num_nextn_predict_layers")
    config = transformers.DeepseekV3Config(**{**facts, "num_hidden_layers": layers})
    with torch.device("meta"):
        model: Any = transformers.DeepseekV3ForCausalLM(config)
        for layer in model.model.layers[config.first_k_dense_replace :]:
            layer.mlp.experts = open_experts(torch.nn, config)
        model.model.layers[-1].eh_proj = torch.nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)
    return model


def open_experts(nn: Any, config: Any) -> Any:
    """One module an expert, with its three linears."""
    wide, narrow = config.hidden_size, config.moe_intermediate_size
    sides = {"gate_proj": (wide, narrow), "up_proj": (wide, narrow), "down_proj": (narrow, wide)}
    return nn.ModuleList(
        nn.ModuleDict({name: nn.Linear(*size, bias=False) for name, size in sides.items()})
        for _ in range(config.n_routed_experts)
    )


def main() -> None:
    """This builds, decides and reports."""
    with timed("import"):
        import torch
        from compressed_tensors.quantization import QuantizationConfig, apply_quantization_config
        from compressed_tensors.quantization.quant_scheme import preset_name_to_scheme
        from compressed_tensors.utils.match import match_named_modules
    with timed("build"):
        model = build(torch)
    scheme = preset_name_to_scheme("NVFP4", [EXPERTS])
    config = QuantizationConfig(config_groups={"experts": scheme}, ignore=KEPT)
    with timed("match"):
        list(match_named_modules(model, [EXPERTS], KEPT))
    with timed("apply"):
        apply_quantization_config(model, config, show_progress=False)
    linears = {name: module for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
    quantized = [name for name, module in linears.items() if hasattr(module, "quantization_scheme")]
    json.dump({"seconds": seconds, "linears": len(linears), "quantized": quantized}, sys.stdout)


if __name__ == "__main__":
    main()
