"""One side of a tied pair is decided without the other.

With tied embeddings the LM head is the embedding matrix. A rule for one of them is a rule for the other, whether the
checkpoint stores one tensor or two.

```prec expect=P404 model=qwen3-4b
embed_tokens: fp8
```

Leave both as they are, or choose a model without the tie.

```prec model=qwen3-4b
@dense_mlp: bf16
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Entry
from precc.diagnostics import Diagnostic, Severity, error
from precc.resolve.bind import Binding
from precc.syntax.words import Role

CODE = "P404"
NAME = "tied-pair"
SEVERITY = Severity.ERROR


def check(binding: Binding) -> Iterator[Diagnostic]:
    """The embedding and the head of a model that ties them."""
    if not binding.model.config.get("tie_word_embeddings"):
        return
    pair = [e for e in binding.contract.entries if e.tensor.role in (Role.EMBEDDING, Role.LM_HEAD)]
    pair = [entry for entry in pair if entry.tensor.outer is None]
    if len({entry.decision.weight for entry in pair}) > 1 or (len(pair) == 1 and pair[0].decision.is_quantized):
        changed = next(entry for entry in pair if entry.decision.is_quantized or entry.span is not None)
        yield error(
            CODE,
            f"`{changed.tensor.module}` would be {changed.decision}, and this model ties it to {_other(changed)}",
            changed.span,
            help="both are one matrix: leave both unquantized",
        )


def _other(entry: Entry) -> str:
    return "its LM head" if entry.tensor.role is Role.EMBEDDING else "its embedding"
