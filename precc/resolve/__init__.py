"""From what was written to what is decided: names, then the cascade, then the binding to a model."""

from precc.resolve.bind import Binding, RuleUse, bind
from precc.resolve.names import resolve_names
from precc.resolve.policy import Policy, PolicyRule

__all__ = ["Binding", "Policy", "PolicyRule", "RuleUse", "bind", "resolve_names"]
