"""Miles: a contract as the arguments and the environment of its converter, trainer, live export and rollout server.

`miles/` is used so:

    source miles/env.sh
    python $(cat miles/convert.args) --model-dir BF16_CHECKPOINT --save-dir CHECKPOINT
    python train.py --hf-checkpoint CHECKPOINT $(cat miles/train.args miles/export.args miles/rollout.args) …

The first word of `convert.args` is the tool, a path of Miles' own repository. The run's one process takes the other
three together, since Miles parses Megatron's arguments, its own and the server's (`--sglang-…`) at once.
"""

from precc_miles.backend import MilesBackend

__all__ = ["MilesBackend", "backend"]

backend = MilesBackend()
"""The object that the entry point names."""
