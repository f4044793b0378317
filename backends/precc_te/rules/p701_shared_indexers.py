"""Megatron-Core cannot leave out an indexer where the model does.

In GLM-5.2 most layers reuse the tokens that an earlier layer's indexer chose, and have none of their own. Megatron-Core
builds such a model since 0.19, and where the layers that have one follow a rhythm: the first few, then every n-th.
Before, every layer gets an indexer that the checkpoint has no weights for.

```prec expect=P701 model=glm-5.2
@routed_experts: mxfp8
targets: te
train: megatron_core=0.16.1
```

Train with a newer one.

```prec model=glm-5.2
@routed_experts: mxfp8
targets: te
train: megatron_core=0.19
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract
from precc.contract.wording import amount
from precc.diagnostics import Diagnostic, Severity, error
from precc_te.indexers import indexed_layers, rhythm_of, skipping_layers
from precc_te.versions import MEGATRON, engine_of

CODE = "P701"
NAME = "te-shared-indexers"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding for a model that this Megatron-Core builds with more indexers, or fewer."""
    model, megatron = contract.model, engine_of(contract.train).megatron
    skipping = skipping_layers(model)
    if not skipping:
        return
    have = f"{amount(len(skipping), 'layer')} of {model.name} have none"
    first = contract.entries[0].span
    if not megatron.shares_indexers:
        since = [version for version, release in MEGATRON.items() if release.shares_indexers][-1]
        message = f"Megatron-Core {megatron.version} builds an indexer in every layer; {have}"
        yield error(CODE, message, first, help=f"train with megatron_core={since} or newer, or leave out `te`")
    elif rhythm_of(model.layers, indexed_layers(model.tensors)) is None:
        message = (
            f"Megatron-Core {megatron.version} builds indexers in the first layers and in every n-th after; {have}"
        )
        yield error(CODE, f"{message}, in another order", first, help="leave `te` out of `targets`")
