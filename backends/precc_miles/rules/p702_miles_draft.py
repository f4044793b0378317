"""A checkpoint of Miles that cannot be served with the model's own MTP layers as a draft.

The converter names what it leaves in BF16 as the checkpoint does (`model.layers.61.…`, and no routed experts in
MXFP8). A server's draft model looks for other names (`model.decoder.…`), and would take BF16 bytes for quantized ones.
A draft decides the speed of a rollout, not its tokens; so the policy compiles, and the server must not have one.

```prec expect=P702 model=glm-4.5-air
default: mxfp8
layers[-6:]: bf16
targets: miles
```

Decide the MTP layers as the decoder's, if the server is to use them:

```prec model=glm-4.5-air
default: mxfp8
@mtp: mxfp8
layers[-6:]: bf16
targets: miles
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract
from precc.contract.wording import counted_names
from precc.diagnostics import Diagnostic, Severity, info
from precc.syntax.words import Role
from precc_miles.choosing import choose
from precc_miles.profile import MILES
from precc_miles.server_arguments import DRAFT
from precc_miles.stages import decided

CODE = "P702"
NAME = "miles-draft"
SEVERITY = Severity.INFO


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding for all tensors that a draft model would run otherwise."""
    run = choose(contract)
    if run.drafts:
        return
    apart = [entry for entry, found in run.draft(contract).items() if found != decided(entry).rollout]
    decidable = any(entry.tensor.role is not Role.LM_HEAD for entry in apart)
    yield info(
        CODE,
        f"a draft model would run {counted_names(apart)} otherwise than the contract says, by the list that the "
        f"converter of Miles {MILES} leaves in the checkpoint",
        apart[0].span,
        help=f"leave `{DRAFT}` out"
        + (", or decide the MTP layers as the decoder's with `@mtp: …`" if decidable else ""),
    )
