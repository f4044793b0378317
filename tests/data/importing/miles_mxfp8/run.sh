#!/bin/bash
# After Miles' MXFP8 recipes for models with latent attention: a converter, a run, and the layers of both in BF16.
set -ex
START=1
END=6
HF_EXCEPTIONS=".kv_b_proj. .shared_experts."

python tools/convert_hf_to_mxfp8.py --model-dir /models/M --save-dir /models/M-MXFP8 \
   --num-layers-at-start-in-bf16 ${START} --num-layers-at-end-in-bf16 $END \
   --extra-high-precision-layers-hf .kv_b_proj. .shared_experts.

export NVTE_BACKWARD_OVERRIDE=high_precision

PRECISION_ARGS=(
   --transformer-impl transformer_engine
   --bf16
   --fp8-format e4m3
   --fp8-recipe mxfp8
   --first-last-layers-bf16
   --num-layers-at-start-in-bf16 ${START}
   --num-layers-at-end-in-bf16 ${END}
   # --fp8-param-gather
   --extra-high-precision-layers-hf ${HF_EXCEPTIONS}
   --extra-high-precision-layers-megatron .linear_kv_up_proj .shared_experts.linear_fc1 .shared_experts.linear_fc2
   --te-precision-config-file "/configs/te.yaml"
)
SGLANG_ARGS=(
   --sglang-moe-runner-backend flashinfer_trtllm_routed
   --sglang-tp-size 2
   --sglang-kv-cache-dtype bf16
)
python3 train.py --hf-checkpoint /models/M-MXFP8 "${PRECISION_ARGS[@]}" "${SGLANG_ARGS[@]}" \
   --tensor-model-parallel-size 4 --expert-model-parallel-size 4 --expert-tensor-parallel-size 1
