"""Models on both sides: how far Megatron-Core's logits are from those of transformers with the mapped weights.

Run as a program with a JSON object as its argument: for each family, TransformerConfig fields. Both sides
are real: Megatron's GPTModel with its own layers, in FP32 on a CPU, and the family's class in transformers.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import tempfile
import warnings
from typing import Any

import torch
from converter.megatron_parameters import prepare
from converter.models import config_of, model
from safetensors.torch import save_file

from precc_converter.trainer import Spelling, TrainerNames
from precc_converter.trainer.values import to_huggingface

EPSILON = 1e-6
ROPE_BASE = 10000


class NoTracker:
    """Random states of a GPU, which a forward without dropout asks for and does not need."""

    def fork(self, *_: object) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


def without_gpu() -> None:
    """What Megatron's forward asks for although its own layers do not need it."""
    from megatron.core.transformer.moe import moe_utils

    moe_utils.te_general_gemm = None
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("megatron") and hasattr(module, "get_cuda_rng_tracker"):
            module.get_cuda_rng_tracker = lambda *_, **__: NoTracker()


def trainer(fields: dict[str, Any], tied: bool) -> Any:
    """Megatron's model with random weights."""
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt import gpt_layer_specs as specs
    from megatron.core.transformer import TransformerConfig

    without_gpu()
    config = TransformerConfig(
        use_cpu_initialization=True,
        gated_linear_unit=True,
        activation_func=torch.nn.functional.silu,
        normalization="RMSNorm",
        layernorm_epsilon=EPSILON,
        persist_layer_norm=False,
        bias_dropout_fusion=False,
        bias_activation_fusion=False,
        masked_softmax_fusion=False,
        apply_rope_fusion=False,
        gradient_accumulation_fusion=False,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        **fields,
    )
    made = GPTModel(
        config=config,
        transformer_layer_spec=specs.get_gpt_decoder_block_spec(config, use_transformer_engine=False),
        vocab_size=128,
        max_sequence_length=64,
        position_embedding_type="rope",
        rotary_base=ROPE_BASE,
        share_embeddings_and_output_weights=tied,
    ).eval()
    for parameter in made.parameters():
        spread = 0.3 if parameter.dim() > 1 else 0.5
        parameter.data.normal_(0.0 if parameter.dim() > 1 else 1.0, spread)
    return made


def server(family: str, weights: dict[str, torch.Tensor]) -> Any:
    """The model of transformers, loaded from a checkpoint of these weights. Fails if one is missing or left over."""
    from transformers import AutoModelForCausalLM

    shown = {**config_of(family), "rms_norm_eps": EPSILON, "rope_theta": float(ROPE_BASE), "norm_topk_prob": True}
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/config.json", "w", encoding="utf-8") as file:
            json.dump({**shown, "torch_dtype": "float32", "model_type": family}, file)
        save_file(
            {name: tensor.clone() for name, tensor in weights.items()},
            f"{folder}/model.safetensors",
            metadata={"format": "pt"},
        )
        loaded, report = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
        )
    assert not any(report.values()), report
    return loaded.eval()


@torch.no_grad()
def compare(family: str, fields: dict[str, Any]) -> dict[str, float]:
    """The largest logit, and the largest difference."""
    torch.manual_seed(0)
    made = trainer(fields, bool(config_of(family).get("tie_word_embeddings")))
    tokens = torch.randint(0, 128, (2, 16))
    positions = torch.arange(16)[None].expand(2, -1)
    ours = made(tokens, positions, torch.triu(torch.ones(1, 1, 16, 16, dtype=torch.bool), 1))
    names = TrainerNames(model(family), Spelling(grouped=False, fused_norms=False))
    weights = {}
    for name, parameter in made.named_parameters():
        weights |= dict(to_huggingface(names.place(name), parameter))
    theirs = server(family, weights)(tokens).logits
    return {"largest": float(theirs.abs().max()), "difference": float((ours - theirs).abs().max())}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.modules["transformer_engine"] = None  # type: ignore[assignment]
    prepare()
    asked = json.loads(sys.argv[1])
    print(json.dumps({family: compare(family, fields) for family, fields in asked.items()}), file=answers)
