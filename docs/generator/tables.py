"""The tables that documentation takes from the program's own."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence

from precc.backend import available, find_backend
from precc.cli import find, summaries
from precc.cli.arguments import ArgumentParser
from precc.formats import FORMATS, Format
from precc.graph import families as known
from precc.graph.catalogue import catalogue
from precc.graph.model import Tensor
from precc.graph.reading import read_model
from precc.syntax.words import GPUS, ROLLOUT_KEYS, TRAIN_KEYS, Role


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table. A head that begins with `>` aligns its column to the right."""
    lines = [
        _line([head.removeprefix(">") for head in heads]),
        _line(["---:" if head.startswith(">") else "---" for head in heads]),
    ]
    return "".join([*lines, *(_line([cell.replace("|", "\\|") for cell in row]) for row in rows)])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


# --- formats -----------------------------------------------------------------------------------------


def formats() -> str:
    """What each format is, and what may be chosen in it."""
    heads = ("format", ">bits", "element", "weight block", "input block", "block scale", "outer scale", "scopes")
    return table(heads, map(_format_row, FORMATS.values()))


def _format_row(form: Format) -> tuple[str, ...]:
    return (
        f"`{form.name}`",
        str(form.bits),
        form.element,
        _block(form.weight_block, form.groups),
        _block(form.input_block, ()),
        _scales(form),
        "FP32" if form.outer_scale else "–",
        _scopes(form),
    )


_SCALE_TYPES = {"e8m0": "E8M0", "e4m3": "E4M3", "bf16": "BF16", "fp32": "FP32", "pow2": "power of two"}


def _scales(form: Format) -> str:
    if form.name == "fp8_block":
        return "power of two (`pow2`) or FP32 (`fp32`)"
    return _SCALE_TYPES[form.block_scale] if form.block_scale else "–"


def _block(block: tuple[int, int] | None, groups: tuple[int, ...]) -> str:
    if groups:
        words = [f"**{group}**" if block == (1, group) else str(group) for group in groups]
        return f"1 × {', '.join(words[:-1])} or {words[-1]}"
    return f"{block[0]} × {block[1]}" if block else "–"


def _scopes(form: Format) -> str:
    if not form.outer_scale:
        return "–"
    weight = _choices(form.weight_scopes, form.weight_scope)
    return f"weight {weight}; input {_choices(form.input_scopes, form.input_scope)}"


def _choices(scopes: Sequence[str], default: str | None) -> str:
    return ", ".join(f"**`{scope}`**" if scope == default and len(scopes) > 1 else f"`{scope}`" for scope in scopes)


# --- models ------------------------------------------------------------------------------------------


def roles() -> str:
    """Each role with the components that play it in the known families."""
    return table(("role", "in the known families"), [(f"`@{role.value}`", _playing(role)) for role in Role])


def _playing(role: Role) -> str:
    names = dict.fromkeys(
        ".".join(tensor.path[-2:]) if role is Role.ROUTER else tensor.path[-1]
        for tensor in known.vocabulary()
        if role in (tensor.role, tensor.outer)
        and tensor.part != "bias"
        and (tensor.outer is None or role is tensor.outer)
    )
    if role is Role.ROUTED_EXPERTS:
        return "under `experts`: " + _listed(names)
    if role is Role.MTP:
        return "the layers behind the last decoder layer"
    return _listed(names) or "none yet"


def _plays(tensor: Tensor, role: Role) -> bool:
    """Whether this is a weight of the role, copies inside an MTP layer left aside."""
    return role is (tensor.outer or tensor.role) and tensor.part != "bias"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def families() -> str:
    """The model families, and the models that are known by name."""
    models: dict[str, list[str]] = {}
    for name in catalogue():
        models.setdefault(read_model(name).family, []).append(name)
    rows = [
        (f"`{family.name}`", _listed(family.architectures), _listed(models.get(family.name, ())))
        for family in known.families()
    ]
    return table(("family", "architecture", "models by name"), rows)


# --- the command line --------------------------------------------------------------------------------


def verbs() -> str:
    """The verbs and what they do."""
    return table(("verb", "what it does"), [(f"[`{verb}`](#{verb})", about) for verb, about in summaries().items()])


def options(verb: str) -> str:
    """The arguments and options of one verb, as its parser has them."""
    parser = ArgumentParser(verb, "")
    find(verb).configure(parser)
    return table(("argument", "meaning"), _actions(parser))


def _actions(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    for action in parser._actions:
        if not isinstance(action, argparse._HelpAction):
            words = action.option_strings or [str(action.metavar or action.dest)]
            value = f" {action.metavar}" if action.option_strings and action.metavar else ""
            yield ", ".join(f"`{word}{value}`" for word in words), action.help or ""


def targets() -> str:
    """The targets, their engines and the versions modelled."""
    rows = []
    for name in sorted(available()):
        engines = find_backend(name).engines
        shown = "; ".join(f"{engine} {', '.join(versions)}" for engine, versions in engines.items())
        rows.append((f"`{name}`", shown or "precc's own"))
    return table(("target", "engines and versions, newest first"), rows)


_LAYOUT_KEYS = {
    "gpu": "the GPU that it runs on",
    "tp": "tensor parallelism",
    "pp": "pipeline parallelism",
    "vpp": "virtual pipeline chunks a stage",
    "ep": "expert parallelism",
    "etp": "tensor parallelism inside an expert; for `rollout:` it is `tp / ep` unless stated",
    "dp": "attention data parallelism",
    "megatron_core": "version of Megatron-Core",
    "te": "version of TransformerEngine",
    "sglang": "version of SGLang",
    "flashinfer": "version of FlashInfer",
}


def layouts() -> str:
    """The keys of `train:` and `rollout:`."""
    keys = dict.fromkeys((*TRAIN_KEYS, *ROLLOUT_KEYS))
    rows = [(f"`{key}`", _sides(key), _about(key)) for key in keys]
    return table(("key", "side", "meaning"), rows)


def _about(key: str) -> str:
    return f"{_LAYOUT_KEYS[key]}: {_listed(GPUS)}" if key == "gpu" else _LAYOUT_KEYS[key]


def _sides(key: str) -> str:
    sides = [side for side, keys in (("train", TRAIN_KEYS), ("rollout", ROLLOUT_KEYS)) if key in keys]
    return "both" if len(sides) == 2 else f"`{sides[0]}`"
