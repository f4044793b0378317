"""Frozen records: what `dataclass(frozen=True)` gives, without what it costs to make one.

`dataclass` compiles six functions for every class, about a millisecond, and imports `inspect`; for the nodes of the
syntax that is more than all else that a lint does. Records share their functions, which read the fields of the class.
One record takes longer to make than one instance of a dataclass: what there is one of for each tensor is a dataclass
or, compared and hashed often, a named tuple.
`dataclasses.replace` and `dataclasses.fields` accept them.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar, dataclass_transform

T = TypeVar("T")

_MISSING: Any = object()
_HASH = "_hash"
"""Where a record keeps its hash once it was asked for; beside its fields, as cached properties are."""


class Field(NamedTuple):
    """What a record knows of one of its fields."""

    default: Any = _MISSING
    compare: bool = True
    repr: bool = True
    kw_only: bool = False


def field(*, default: Any = _MISSING, compare: bool = True, repr: bool = True, kw_only: bool = False) -> Any:
    """A field that is left out of comparisons, out of the text of a record, or named when one is made."""
    return Field(default, compare, repr, kw_only)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """This makes a class of annotated fields a frozen record, hashable, comparable and matchable."""
    fields: dict[str, Field] = dict(getattr(cls, "__record_fields__", {}))
    for name in cls.__annotations__:
        default = cls.__dict__.get(name, _MISSING)
        fields[name] = default if isinstance(default, Field) else Field(default)
        if isinstance(default, Field):
            delattr(cls, name)
    members = {
        "__record_fields__": fields,
        "__record_compared__": _comparison([name for name, entry in fields.items() if entry.compare]),
        "__match_args__": tuple(name for name, entry in fields.items() if not entry.kw_only),
        "__dataclass_fields__": _DESCRIPTION,
        **_METHODS,
    }
    for name, member in members.items():
        setattr(cls, name, member)
    return cls


def replace(original: T, **changes: Any) -> T:
    """A record with some fields changed."""
    return type(original)(**{**values(original), **changes})


def values(original: Any) -> dict[str, Any]:
    """The fields of a record, by name; what a cached property keeps beside them is left out."""
    state = vars(original)
    return {name: state[name] for name in original.__record_fields__}


def stated(original: Any) -> dict[str, Any]:
    """The fields of a record that do not have their default."""
    fields: dict[str, Field] = original.__record_fields__
    return {name: value for name, value in values(original).items() if value != fields[name].default}


def _comparison(names: list[str]) -> Callable[[Any], object]:
    """What of a record is compared and hashed."""
    return staticmethod(attrgetter(*names)) if names else staticmethod(lambda _: ())


def _init(self: Any, *values: Any, **named: Any) -> None:
    names: tuple[str, ...] = self.__match_args__
    given = dict(zip(names, values, strict=False))
    if len(values) > len(names) or given.keys() & named.keys():
        raise TypeError(f"{type(self).__name__} is given a field twice, or one too many")
    given.update(named)
    state = self.__dict__
    for name, entry in self.__record_fields__.items():
        state[name] = given.pop(name, entry.default)
        if state[name] is _MISSING:
            raise TypeError(f"{type(self).__name__} needs {name!r}")
    if given:
        raise TypeError(f"{type(self).__name__} has no field {next(iter(given))!r}")


def _eq(self: Any, other: object) -> bool:
    if self is other:
        return True
    compared = type(self).__record_compared__
    return compared(self) == compared(other) if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    state: dict[str, int] = self.__dict__
    if _HASH not in state:
        state[_HASH] = hash((type(self), type(self).__record_compared__(self)))
    return state[_HASH]


def _repr(self: Any) -> str:
    fields: dict[str, Field] = self.__record_fields__
    shown = (f"{name}={vars(self)[name]!r}" for name, entry in fields.items() if entry.repr)
    return f"{type(self).__name__}({', '.join(shown)})"


def _frozen(self: Any, name: str, *value: object) -> None:
    raise AttributeError(f"{type(self).__name__} is frozen: {name!r} stays as it is")


class _Description:
    """The fields as `dataclasses` describes them, for its own functions."""

    def __get__(self, instance: object, owner: Any) -> dict[str, Any]:
        from dataclasses import make_dataclass

        described: Any = make_dataclass(owner.__name__, owner.__record_fields__)
        fields: dict[str, Any] = described.__dataclass_fields__
        owner.__dataclass_fields__ = fields
        return fields


_DESCRIPTION = _Description()
_METHODS = {
    "__init__": _init,
    "__eq__": _eq,
    "__hash__": _hash,
    "__repr__": _repr,
    "__setattr__": _frozen,
    "__delattr__": _frozen,
    "__getstate__": values,
}
