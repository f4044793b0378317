"""SGLang would fold the shared expert into the routed ones.

DeepSeek-V3 and GLM-4 classes may run the shared expert as one more expert of the fused expert layer. It then takes
that layer's method, whatever the policy decides for it. Where the two differ, the emitted `server.yaml` says
`disable-shared-experts-fusion: true`, and this is information: start the server with that file, or give the shared
experts the routed experts' decision. It is an error where the file cannot keep them apart.

Two arguments of the command line fuse them all the same, `--enable-waterfill` and `--enforce-shared-experts-fusion`.

```prec expect=P203 model=glm-4.5-air
targets: sglang
@routed_experts: mxfp8
```

Routed and shared alike, there is nothing to keep apart:

```prec model=glm-4.5-air
targets: sglang
@routed_experts, @shared_experts: mxfp8
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract
from precc.contract.wording import counted_names
from precc.diagnostics import Diagnostic, Severity, error, info
from precc.syntax.words import Role
from precc_sglang.methods import choice_of
from precc_sglang.refusal import engine
from precc_sglang.server import UNFUSED, arguments, layers_apart

CODE = "P203"
NAME = "shared-expert-fusion"
SEVERITY = Severity.INFO


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding for all layers whose shared experts differ from their routed ones, where the class folds them."""
    choice = choice_of(contract)
    apart = layers_apart(contract)
    if choice is None or not choice.built.folds_shared or not apart:
        return
    in_them = [entry for entry in contract.entries if (entry.tensor.layer, entry.tensor.mtp) in apart]
    shared = [entry for entry in in_them if entry.tensor.role is Role.SHARED_EXPERTS]
    experts = [*shared, *(entry for entry in in_them if entry.tensor.role is Role.ROUTED_EXPERTS)]
    finding = info if (UNFUSED, True) in arguments(contract, choice) else error
    yield finding(
        CODE,
        f"{engine(contract)} may fold shared experts into the routed ones, which are decided otherwise: "
        f"{counted_names(shared)}",
        next((entry.span for entry in experts if entry.span is not None), None),
        help="`disable-shared-experts-fusion` is emitted in server.yaml; start the server with that file",
    )
