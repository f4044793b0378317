"""The one profile that is modelled: Miles at a commit, and the engines that its image pins.

Miles has no releases. Rules and names were read at commit 31f1ca9 (2026-08-21), whose `docker/Dockerfile` pins
SGLang 0.5.16, TransformerEngine 2.17 with two patches, FlashInfer 0.6.15.post1, and the branch `miles-main` of
`radixark/Megatron-LM` (read at 2e64d78, which calls itself 0.16). The patch that keeps a `dequantized` backward from
being defeated is applied in the CUDA 13 image only.
"""

from __future__ import annotations

from collections.abc import Mapping

MILES = "31f1ca9"

ENGINES: Mapping[str, tuple[str, ...]] = {
    "miles": (MILES,),
    "megatron_core": ("miles-main",),
    "te": ("2.17",),
    "sglang": ("0.5.16",),
    "flashinfer": ("0.6.15.post1",),
}

MTP_INNER = "transformer_layer"
"""What an MTP layer of this Megatron calls its inner layer (`multi_token_prediction.py:768`)."""

HOPPER: tuple[str, ...] = ("h100", "h200")
BLACKWELL: tuple[str, ...] = ("b200", "b300", "gb200", "gb300")

MAPPED: Mapping[str, str] = {
    "DeepseekV3ForCausalLM": "deepseekv3.py",
    "DeepseekV32ForCausalLM": "deepseekv3.py",
    "GlmMoeDsaForCausalLM": "deepseekv3.py",
    "Glm4MoeForCausalLM": "glm4moe.py",
    "LlamaForCausalLM": "llama.py",
    "Qwen2ForCausalLM": "qwen2.py",
    "Qwen3ForCausalLM": "qwen2.py",
    "Qwen3MoeForCausalLM": "qwen3moe.py",
    "Qwen3NextForCausalLM": "qwen3_next.py",
}
"""The architectures of which Miles can name trained weights for a server, with the file of
`backends/megatron_utils/megatron_to_hf` that does. Its dispatch is by parts of names (`__init__.py:40`): those that
land in the file of another architecture are not here: Llama 4 (`llama.py`), Qwen3-VL (`qwen2.py`), and MiMo-V2, whose
experts and sinks `mimo.py`, which is for MiMo's dense model, does not know."""

UNMODELLED: Mapping[str, str] = {
    "DeepseekV4ForCausalLM": "deepseekv4.py",
    "KimiK25ForConditionalGeneration": "kimi_vl.py",
    "Qwen3_5ForConditionalGeneration": "qwen3_5.py",
    "Qwen3_5MoeForConditionalGeneration": "qwen3_5.py",
}
"""The architectures that have such a file too, and whose names precc does not model. The experts of Qwen3.5 are stacked
tensors, moreover, that no converter of Miles takes apart."""
