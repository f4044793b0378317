"""A selector matches nothing, and not because the model lacks such a part.

Two mistakes look alike and are told apart. Either no model family that precc knows has such a name: a typing error,
or a name of another tool. Or the model does have tensors that play this part, under another name, and the rule
misses them: `shared_experts` on a model that calls its one `shared_expert`.

A rule that silently matches nothing is how one side of a run ends up in another precision than the rest, so this is
an error, and `?` does not silence it.

```prec expect=P101 model=deepseek-v3
kv_bproj: bf16
```

```prec expect=P101 model=mixtral-8x7b
experts.*.gate_proj: mxfp8
experts.*.up_proj: mxfp8
experts.*.down_proj: mxfp8
```

Write the name of the checkpoint, or a role, which every architecture understands:

```prec model=deepseek-v3
kv_b_proj: bf16
```

```prec model=mixtral-8x7b
@routed_experts: mxfp8
```
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from precc.contract.wording import listed
from precc.diagnostics import Diagnostic, Edit, Fix, Severity, error
from precc.graph.families import vocabulary
from precc.graph.model import ModelGraph, Tensor
from precc.resolve.bind import Binding
from precc.rules.matching import Miss, expected_misses, misses
from precc.syntax.ast import Name, PathSelector

CODE = "P101"
NAME = "unknown-name"
SEVERITY = Severity.ERROR


def check(binding: Binding) -> Iterator[Diagnostic]:
    """Every selector that matches nothing on this model though it should."""
    for miss in chain(misses(binding), expected_misses(binding)):
        if not miss.known:
            yield _unknown(miss, binding.model)
        elif miss.elsewhere:
            yield _elsewhere(miss)


def _unknown(miss: Miss, model: ModelGraph) -> Diagnostic:
    component, word, near = _nearest(miss.selector, model)
    if word.endswith(".weight") or word == "weight":
        return error(
            CODE, f"`{miss.text}` matches nothing", miss.selector.span, help="names are written without `.weight`"
        )
    message = f"no known model has `{word}`" if word == miss.text else f"`{miss.text}`: no known model has `{word}`"
    fix = Fix((Edit(component.span, near[0]),), safe=False) if near and component is not None else None
    hint = f"did you mean {listed([f'`{name}`' for name in near], 'or')}?" if near else None
    return error(CODE, message, miss.selector.span, help=hint or _some_names(model), fix=fix)


def _elsewhere(miss: Miss) -> Diagnostic:
    names = list(dict.fromkeys(_family_name(tensor) for tensor in miss.elsewhere))
    roles = {tensor.role for tensor in miss.elsewhere}
    role = miss.elsewhere[0].role if len(roles) == 1 else None
    what = f"its {role.value} tensors" if role is not None else "these tensors"
    hint = f"write `@{role.value}`, which every architecture understands, or the name" if role else "write the name"
    return error(
        CODE,
        f"`{miss.text}` matches nothing on this model, which calls {what} {listed([f'`{n}`' for n in names[:4]])}",
        miss.selector.span,
        help=hint,
    )


def _family_name(tensor: Tensor) -> str:
    """The components behind the layer number: `mlp.shared_expert.gate_proj`, or `experts.*.w1`."""
    words = ["*" if word == "{e}" else word for word in tensor.path]
    if tensor.layer is not None:
        words = words[words.index(str(tensor.layer)) + 1 :]
    return ".".join(words)


def _nearest(selector: PathSelector, model: ModelGraph) -> tuple[Name | None, str, list[str]]:
    """The component that nobody knows, and the known names nearest to it."""
    from difflib import get_close_matches

    own = {word for tensor in model.tensors for word in tensor.words}
    known = own | {word for tensor in vocabulary() for word in tensor.words}
    for component in selector.components:
        if isinstance(component, Name) and component.is_literal and known.isdisjoint(component.alternatives):
            word = component.alternatives[0]
            return component, word, get_close_matches(word, sorted(known, key=own.__contains__), n=2, cutoff=0.6)
    return None, selector.span.text, []


def _some_names(model: ModelGraph) -> str:
    first = next((t for t in model.tensors if t.layer is not None and t.is_gemm), model.tensors[0])
    return f"names are those of the checkpoint, such as `{first.module}`; `precc explain` shows one"
