"""Megatron-Core and TransformerEngine: a contract as arguments, per-module recipes and environment.

`te/` is used so, from the folder itself or with the path of the YAML made absolute (of a repeated argument the last
counts in Megatron):

    source te/env.sh
    torchrun … pretrain_gpt.py $(cat te/megatron.args) --te-precision-config-file "$PWD/te/te_precision.yaml" …

`megatron.args` holds one argument a line and no comment, so that it can stand in a command line. Where a decision
depends on the layer and the model runs in pipeline stages, there is one YAML a stage, and the wrapper picks it:

    torchrun --no-python … te/with_stage_recipe.sh python pretrain_gpt.py $(cat te/megatron.args) …

In the job itself, `precc_te.attest(model, contract)` says whether what was built runs what was compiled, and where a
contract says `train fake_quant`, `precc_te.fake_quantize(model, contract)` makes it so first.

`env.json` is the same environment for launchers that set it themselves; it states that parameter gather is off, and
the arguments under which Megatron would not run what the files say.
"""

from precc_te.attest import attest
from precc_te.backend import TeBackend
from precc_te.rounding import fake_quantize

__all__ = ["TeBackend", "attest", "backend", "fake_quantize"]

backend = TeBackend()
"""The object that the entry point names."""
