"""This module writes abstract syntax as text, for tools that make policies and to show a rule in a line."""

from __future__ import annotations

from fractions import Fraction

from precc.syntax import ast


def file_text(file: ast.File) -> str:
    """A whole policy, one statement a line."""
    return "".join(f"{statement_text(statement)}\n" for statement in file.statements)


def statement_text(statement: ast.Statement) -> str:
    """One statement on one line."""
    match statement:
        case ast.PolicyName(name):
            return f'policy "{name}"'
        case ast.Extends(target):
            return f'extends "{target}"'
        case ast.Let(name, spec):
            return f"let {name} = {spec_text(spec)}"
        case ast.Default(spec):
            return f"default: {spec_text(spec)}"
        case ast.Rule(selectors, spec):
            return f"{', '.join(map(selector_text, selectors))}: {spec_text(spec)}"
        case ast.KvCache(format):
            return f"kv_cache: {format}"
        case ast.Layout(side, settings):
            return f"{side}: {' '.join(f'{setting.key}={setting.value}' for setting in settings)}"
        case ast.Targets(names):
            return f"targets: {', '.join(names)}"
        case ast.Expect(condition):
            return f"expect {condition_text(condition)}"


# --- selectors ---------------------------------------------------------------------------------------


def selector_text(selector: ast.Selector) -> str:
    """A selector as its author would write it."""
    if isinstance(selector, ast.CombinedSelector):
        right = selector_text(selector.right)
        right = f"({right})" if isinstance(selector.right, ast.CombinedSelector) else right
        return f"{selector_text(selector.left)} {selector.operator} {right}"
    mark = "?" if selector.optional else ""
    match selector:
        case ast.PathSelector(components):
            return ".".join(map(component_text, components)) + mark
        case ast.RoleSelector(role):
            return f"@{role}{mark}"
        case ast.GroupSelector(members):
            return f"({', '.join(map(selector_text, members))}){mark}"


def component_text(component: ast.Component) -> str:
    """One component of a path."""
    match component:
        case ast.AnyDepth():
            return "**"
        case ast.Name((alternative,)):
            return alternative
        case ast.Name(alternatives):
            return f"{{{','.join(alternatives)}}}"
        case ast.Layers(ast.Indices(values)):
            return f"layers[{','.join(map(str, values))}]"
        case ast.Layers(ast.Slice(start, stop)):
            return f"layers[{_bound_text(start)}:{_bound_text(stop)}]"
    raise AssertionError(f"no such component: {component!r}")


def _bound_text(bound: ast.Bound | None) -> str:
    if bound is None:
        return ""
    return f"{'-' if bound.from_end else ''}{_decimal(bound.value)}{'%' if bound.is_share else ''}"


def _decimal(value: Fraction) -> str:
    """A decimal fraction, exactly."""
    if value.denominator == 1:
        return str(value.numerator)
    digits = 0
    while (value * 10**digits).denominator != 1:
        digits += 1
    text = f"{int(value * 10**digits):0{digits + 1}}"
    return f"{text[:-digits]}.{text[-digits:]}"


# --- specs -------------------------------------------------------------------------------------------


def spec_text(spec: ast.Spec) -> str:
    """The clauses in the author's order."""
    return ", ".join(map(clause_text, spec.clauses))


def clause_text(clause: ast.Clause) -> str:
    """One clause."""
    match clause:
        case ast.OperandClause(operand, format, options):
            return " ".join((*((operand,) if operand else ()), format, *_option_words(options)))
        case ast.OptionClause(options):
            return " ".join(_option_words(options))
        case ast.BackwardClause(mode):
            return f"backward {mode}"
        case ast.SwitchClause(switch):
            return switch
        case ast.TrainClause(mode):
            return f"train {mode}"
        case ast.ReferenceClause(name):
            return name


def _option_words(options: ast.Options) -> list[str]:
    words = [
        options.scope,
        f"group {options.group}" if options.group else None,
        f"scales {options.scales}" if options.scales else None,
        "weight_block {}x{}".format(*options.weight_block) if options.weight_block else None,
        _four_over_six_text(options.four_over_six) if options.four_over_six else None,
        "static" if options.static else None,
    ]
    return [word for word in words if word]


def _four_over_six_text(scaling: ast.FourOverSix) -> str:
    maximum = f" max {scaling.maximum}" if scaling.maximum else ""
    return f"four_over_six{' ' + scaling.error if scaling.error else ''}{maximum}"


# --- conditions --------------------------------------------------------------------------------------


def condition_text(condition: ast.Condition) -> str:
    """The condition of an `expect`; sizes are in bytes."""
    match condition:
        case ast.FractionCondition(format, comparison, bound):
            return f"fraction({format}) {comparison} {_decimal(bound * 100)}%"
        case ast.BitsCondition(comparison, bound):
            return f"bits_per_weight {comparison} {_decimal(bound)}"
        case ast.SizeCondition(comparison, bound):
            return f"size {comparison} {bound} B"
        case ast.IsCondition(selector, format):
            return f"{selector_text(selector)} is {format or 'unquantized'}"
