"""SGLang judges its own artifacts: its code, on a CPU, says what it would run, and is compared with the contract.

    from precc_sglang.upstream import Judge, upstream

`upstream(contract, artifacts)` asks once; `Judge` keeps one live process for many questions. Both go through the
engine's own front door: `env.sh` in a shell full of contrary variables, `server.yaml` through its parser and checks,
the model class at the model's own size without memory, and its loader on a small checkpoint of the same structure.
"""

from precc_sglang.upstream.judging import Judge, upstream

__all__ = ["Judge", "upstream"]
