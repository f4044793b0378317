"""The trainer has to round weights in its forward, and no argument of Megatron does that.

`train fake_quant` is BF16 training on weights that are rounded as the converter rounds them. TransformerEngine has no
recipe for it: its linear layers run in BF16, and without the rounding the trainer's policy drifts from the sampler's.

```prec expect=P703 model=qwen3-30b-a3b
@routed_experts: weight int4 group 32, train fake_quant
```

Make the call on every rank, once the model is built:

```python
contract = precc.load_contract("out")
precc_te.fake_quantize(model, contract)
precc_te.attest(model, contract)
```

`precc_te.attest` refuses a model that rounds a weight otherwise than its contract says, or not at all. A trainer's
own switch for it (OPEN_TRAINING_INT4_FAKE_QAT_FLAG of some forks) stays unset, as `env.sh` has it: it keeps scales in
FP32, where the checkpoint has them in BF16.
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract, Entry
from precc.contract.wording import counted_names
from precc.diagnostics import Diagnostic, Severity, info
from precc.formats import Quantization
from precc_te.modules import modules_of
from precc_te.rounding import CALL

CODE = "P703"
NAME = "te-fake-quantized"
SEVERITY = Severity.INFO


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding for each format that the forward rounds to."""
    found: dict[Quantization, list[Entry]] = {}
    for line in modules_of(contract).lines:
        if line.rounding is not None and line.module is not None:
            found.setdefault(line.rounding, []).append(line.entry)
    for weight, entries in found.items():
        yield info(
            CODE,
            f"{counted_names(entries)} train as `{weight}` only if the job itself rounds them in its forward: "
            "no argument of Megatron does",
            entries[0].span_of("train"),
            help=f"when the model is built, call `{CALL}` on every rank, and then `precc_te.attest(model, contract)`",
        )
