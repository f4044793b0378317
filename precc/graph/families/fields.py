"""What is read from `config.json`: each field with what it may be, and the facts that follow from several."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from precc.graph.errors import MISSING, FieldError

MAX_SIZE = 2**24
MAX_LAYERS = 1000
MAX_EXPERTS = 2**16


@dataclass(frozen=True, slots=True)
class Field:
    """One fact: the `key` in the file, whether a value is `valid`, and what is `allowed` in words.

    Without a `default` the key has to be there; a callable one is given the facts read so far. A null counts
    as absent unless the field is `nullable`: then it is a value, and the key has to be there.
    """

    fact: str
    key: str
    valid: Callable[[object], bool]
    allowed: str
    default: Any = MISSING
    nullable: bool = False

    def read(self, raw: Mapping[str, object], facts: Mapping[str, Any]) -> Any:
        """The value in `raw`, or the default. Raises FieldError."""
        value = raw.get(self.key, MISSING)
        if value is None and self.nullable:
            return None
        if value is MISSING or (value is None and self.default is not MISSING):
            if self.default is MISSING:
                raise FieldError(self.key, MISSING, self.allowed)
            return self.default(facts) if callable(self.default) else self.default
        if not self.valid(value):
            raise FieldError(self.key, value, self.allowed)
        return tuple(value) if isinstance(value, list) else value


def is_integer(value: object, least: int, most: int) -> bool:
    """Whether a value is an integer in a range, both ends included; JSON's true and false are none."""
    return type(value) is int and least <= value <= most


def whole(
    fact: str,
    *,
    key: str = "",
    least: int = 1,
    most: int = MAX_SIZE,
    default: Any = MISSING,
    nullable: bool = False,
) -> Field:
    """An integer field."""
    allowed = f"an integer from {least:,} to {most:,}" + (", or null" if nullable else "")
    return Field(fact, key or fact, lambda value: is_integer(value, least, most), allowed, default, nullable)


def flag(fact: str, default: bool = False) -> Field:
    """A field that is true or false."""
    return Field(fact, fact, lambda value: isinstance(value, bool), "true or false", default)


def word(fact: str, allowed: tuple[str, ...], default: str) -> Field:
    """A field that is one of a few words."""
    return Field(fact, fact, lambda value: value in allowed, " or ".join(allowed), default)


def layer_list(fact: str, *, key: str = "") -> Field:
    """A field that lists layers; none when absent."""

    def valid(value: object) -> bool:
        return isinstance(value, list) and all(is_integer(layer, 0, MAX_LAYERS - 1) for layer in value)

    return Field(fact, key or fact, valid, "a list of layer numbers", ())


def pattern(fact: str, *, key: str = "") -> Field:
    """A field that says 0 or 1 of each layer."""

    def valid(value: object) -> bool:
        return isinstance(value, list) and len(value) <= MAX_LAYERS and all(is_integer(word, 0, 1) for word in value)

    return Field(fact, key or fact, valid, "a list of 0 and 1, one a layer")


def always(key: str, value: bool | str) -> Field:
    """A field of which every release of a family says the same: another value would mean other tensors."""
    shown = str(value).lower()
    return Field(key, key, lambda found: found == value, f"{shown} in this family", value)


def pair(fact: str, *, key: str = "") -> Field:
    """A field that is two small integers, as the sides of a window are."""

    def valid(value: object) -> bool:
        return isinstance(value, list) and len(value) == 2 and all(is_integer(side, 1, 64) for side in value)

    return Field(fact, key or fact, valid, "two integers from 1 to 64")


def word_list(fact: str, allowed: tuple[str, ...], default: Any = ()) -> Field:
    """A field that lists one of a few words for each layer; none when absent, or the default."""

    def valid(value: object) -> bool:
        return isinstance(value, list) and len(value) <= MAX_LAYERS and all(word in allowed for word in value)

    return Field(fact, fact, valid, f"a list of {' or '.join(allowed)}", default)


def _head_dim(facts: Mapping[str, Any]) -> int:
    hidden, heads = facts["hidden_size"], facts["num_attention_heads"]
    if hidden % heads:
        raise FieldError("num_attention_heads", heads, f"a divisor of hidden_size ({hidden}), or head_dim be given")
    return int(hidden // heads)


DECODER = (
    whole("vocab_size"),
    whole("hidden_size"),
    whole("num_hidden_layers", most=MAX_LAYERS),
    whole("num_attention_heads"),
    flag("tie_word_embeddings"),
    flag("attention_bias"),
)
DENSE_MLP = whole("intermediate_size")
KEY_VALUE_HEADS = whole("num_key_value_heads")
KEY_VALUE_HEADS_OR_ALL = whole("num_key_value_heads", default=lambda facts: facts["num_attention_heads"])
HEAD_DIM = whole("head_dim")
HEAD_DIM_OR_SPLIT = whole("head_dim", default=_head_dim)

MLA = (
    whole("q_lora_rank", nullable=True),
    whole("kv_lora_rank"),
    whole("qk_nope_head_dim"),
    whole("qk_rope_head_dim"),
    whole("v_head_dim"),
)


def moe(experts: str, width: str = "moe_intermediate_size") -> tuple[Field, ...]:
    """The fields of routed experts, whose number and width families spell differently."""
    return (
        whole("num_experts", key=experts, most=MAX_EXPERTS),
        whole("num_experts_per_tok", most=MAX_EXPERTS),
        whole("moe_intermediate_size", key=width),
    )


DENSE_FIRST = whole("first_k_dense_replace", least=0, most=MAX_LAYERS, default=0)
MOE_FREQUENCY = whole("moe_layer_freq", most=MAX_LAYERS, default=1)
SHARED_EXPERTS = whole("n_shared_experts", least=0, default=0)
MTP_LAYERS = whole("num_mtp_layers", key="num_nextn_predict_layers", least=0, most=16, default=0)


def grouped_heads(facts: Mapping[str, Any]) -> dict[str, Any]:
    """This checks that query heads divide into groups; no new facts."""
    heads, groups = facts["num_attention_heads"], facts["num_key_value_heads"]
    if heads % groups:
        raise FieldError("num_key_value_heads", groups, f"a divisor of num_attention_heads ({heads})")
    return {}


def no_bias(facts: Mapping[str, Any]) -> dict[str, Any]:
    """This checks that attention has no biases, as in every release of these families; no new facts."""
    if facts["attention_bias"]:
        raise FieldError("attention_bias", True, "false in this family")
    return {}


def only(facts: Mapping[str, Any], fact: str, value: object) -> dict[str, Any]:
    """This checks a field of which the family's classes know one value only; no new facts."""
    if facts[fact] != value:
        found = facts[fact]
        shown = list(value) if isinstance(value, tuple) else value
        raise FieldError(fact, list(found) if isinstance(found, tuple) else found, f"{shown} in this family")
    return {}


def listed_layers(facts: Mapping[str, Any], fact: str) -> None:
    """This checks that a list names layers of the model."""
    layers = facts["num_hidden_layers"]
    if any(layer >= layers for layer in facts[fact]):
        raise FieldError(fact, list(facts[fact]), f"numbers of layers, from 0 to {layers - 1}")


def one_a_layer(facts: Mapping[str, Any], fact: str) -> None:
    """This checks that a list has one entry for each decoder layer."""
    layers = facts["num_hidden_layers"]
    if len(facts[fact]) != layers:
        raise FieldError(fact, list(facts[fact]), f"a list of {layers} entries, one a layer")


def sparse_layers(facts: Mapping[str, Any], is_sparse: Callable[[int], bool]) -> dict[str, Any]:
    """Which decoder layers route to experts and which do not."""
    if facts["num_experts_per_tok"] > facts["num_experts"]:
        allowed = f"at most the number of experts ({facts['num_experts']})"
        raise FieldError("num_experts_per_tok", facts["num_experts_per_tok"], allowed)
    layers = range(facts["num_hidden_layers"])
    return {
        "moe_layers": tuple(layer for layer in layers if is_sparse(layer)),
        "dense_layers": tuple(layer for layer in layers if not is_sparse(layer)),
    }


def sparse_after_dense(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Dense layers first, then routed ones (every `moe_layer_freq`-th), beside a shared expert."""
    first, every = facts["first_k_dense_replace"], facts.get("moe_layer_freq", 1)
    if first > facts["num_hidden_layers"]:
        allowed = f"at most num_hidden_layers ({facts['num_hidden_layers']})"
        raise FieldError("first_k_dense_replace", first, allowed)
    return {
        **sparse_layers(facts, lambda layer: layer >= first and layer % every == 0),
        "shared_expert_intermediate_size": facts["n_shared_experts"] * facts["moe_intermediate_size"],
    }
