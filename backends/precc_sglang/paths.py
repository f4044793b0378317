"""The files of the target."""

CONFIG_PATH = "sglang/quantization_config.json"
LEGACY_PATH = "sglang/hf_quant_config.json"
SERVER_PATH = "sglang/server.yaml"
SHELL_PATH = "sglang/env.sh"
ENVIRONMENT_PATH = "sglang/env.json"
