"""SGLang: blocks of 128 rows do not divide one of several weights in one GEMM.

A fused linear layer in block FP8 has a scale for each 128×128 block, and each of its members has to begin at one:
SGLang stops where the rows of a member are no multiple of 128. The write strengths and decays of a gated delta net
(`in_proj_ba`, two rows a head) are such members, and so few rows that every published checkpoint keeps them in BF16.
The time steps of a Mamba-2 mixer, a row for each head, are another.

```prec expect=P701 model=qwen3-next-80b-a3b
targets: sglang
default: fp8_block
```

Keep them in BF16 where only the server runs them; Megatron multiplies them with the other input projections, in one
format:

```prec model=qwen3-next-80b-a3b
targets: sglang
default: fp8_block
in_proj_ba: bf16
```
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from precc.contract import Contract, Entry
from precc.diagnostics import Diagnostic, Severity
from precc_sglang.classes import QKV_A
from precc_sglang.families import FP8_BLOCK
from precc_sglang.methods import choice_of
from precc_sglang.names import Kind, Module
from precc_sglang.refusal import refuse

CODE = "P701"
NAME = "sglang-block-of-rows"
SEVERITY = Severity.ERROR

TWO_IN_ONE = "ba"
"""The part of a tensor that SGLang holds as two outputs of one layer; q_a and kv_a of MLA are one output."""

FIVE_IN_ONE = "in"
"""The part that it holds as gate, values, both state matrices and time steps."""


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding for all block-FP8 weights of fused layers that 128 rows do not divide."""
    choice = choice_of(contract)
    if choice is None:
        return
    cut = [
        entry
        for module, entry, family in choice.entries(Kind.LINEAR)
        if family is FP8_BLOCK and _is_fused(module, entry) and _rows(entry, contract) % _block(entry)
    ]
    yield from refuse(
        contract,
        CODE,
        cut,
        "does not start with these rows in blocks of 128, several weights being one GEMM",
        "write `bf16` for them, or `@linear_attention: bf16` where Megatron trains them",
    )


def _is_fused(module: Module, entry: Entry) -> bool:
    return (len(module.shards) > 1 and module.last not in QKV_A) or entry.tensor.part in (TWO_IN_ONE, FIVE_IN_ONE)


def _rows(entry: Entry, contract: Contract) -> int:
    """The rows of a member; of several unlike ones, what divides the rows of each."""
    if entry.tensor.part == FIVE_IN_ONE:
        facts = contract.model.config
        heads, states = facts["mamba_num_heads"], facts["mamba_n_groups"] * facts["ssm_state_size"]
        return gcd(heads * facts["mamba_head_dim"], states, heads)
    members = 2 if entry.tensor.part == TWO_IN_ONE else 1
    return entry.tensor.shape[0] // members


def _block(entry: Entry) -> int:
    return (entry.decision.weight.block or (1, 1))[0]
