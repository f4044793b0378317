"""`precc explain`: why one tensor has its format."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from precc.backend import Backend
from precc.cli.arguments import ArgumentParser
from precc.cli.config import fill
from precc.cli.deciding import decide
from precc.cli.naming import Asked, ask
from precc.cli.planning import role
from precc.cli.reporting import show_beside
from precc.cli.subjects import Targets, one_model
from precc.cli.terminal import print_json
from precc.contract import Contract, Entry

if TYPE_CHECKING:
    from precc.backend import Complete

DESCRIPTION = "Show what is decided for one tensor, by which rule, and every rule that this one beat."
EXAMPLES = """\
  precc explain policy.prec --model qwen3-30b-a3b model.layers.3.mlp.experts.5.gate_proj
  precc explain nvfp4_rl --model deepseek-v3 model.layers.60.self_attn.kv_b_proj.weight

JSON: {tensor, shape, role, layer, decision: {weight: {format, …}, input: {format, scope, …}, backward, …}, rule:
{file, line, text}, clauses: {weight: {file, line}, …}, beaten: [{file, line, text}], names: {huggingface,
megatron, sglang}, outside: {ENGINE: {name, why}}, fused_with: [tensor], shares_scale_with: [tensor]}; `outside` is what
an engine's lists or recipes cannot name."""


def configure(parser: ArgumentParser) -> None:
    """The arguments of `explain`."""
    parser.add_policy()
    parser.add_models(several=False)
    parser.add_argument("tensor", metavar="TENSOR", help="a name of the checkpoint, with or without .weight")
    parser.add_targets()
    parser.add_layouts()
    parser.add_output_format()


def run(options: Namespace) -> int:
    """This prints the explanation."""
    fill(options, options.file)
    binding, done = decide(options.file, one_model(options.models), options)
    contract = binding.contract
    asked = ask(contract, options.tensor)
    shown = explanation(contract, asked, Targets(options).every())
    if options.output_format == "json":
        print_json(shown)
    else:
        print("\n".join(_lines(shown, asked.entry)))
    show_beside([finding for finding in done.findings if finding.is_error])
    return int(done.has_errors)


def explanation(contract: Contract, asked: Asked, backends: Iterable[Backend]) -> dict[str, Any]:
    """The explanation, in the shape that `--output-format json` writes."""
    entry, backends = asked.entry, tuple(backends)
    return {
        "tensor": entry.tensor.name,
        "shape": list(entry.tensor.shape),
        "role": role(entry.tensor),
        "layer": entry.tensor.layer,
        "decision": entry.decision.to_json(),
        "rule": entry.cause.to_json(),
        "clauses": {part: _place(cause.to_json()) for part, cause in entry.clauses},
        "beaten": [cause.to_json() for cause in entry.beaten],
        "names": _names(contract, entry, backends),
        "outside": _outside(contract, entry, backends),
        "fused_with": list(dict.fromkeys(_members(contract, asked, fused=True))),
        "shares_scale_with": list(dict.fromkeys(_members(contract, asked, fused=False))),
    }


def _place(cause: dict[str, Any]) -> dict[str, Any]:
    return {"file": cause["file"], "line": cause["line"]}


def _names(contract: Contract, entry: Entry, backends: Iterable[Backend]) -> dict[str, str | None]:
    """The tensor's name in the checkpoint, and what each engine calls its module."""
    names: dict[str, str | None] = {"huggingface": entry.tensor.name}
    for backend in backends:
        known = next((told for other in contract.entries if (told := backend.names(contract, other))), {})
        names |= dict.fromkeys(known) | dict(backend.names(contract, entry))
    return names


def _outside(contract: Contract, entry: Entry, backends: Iterable[Backend]) -> dict[str, dict[str, str]]:
    """What holds the tensor in engines whose lists or recipes cannot name it, and why they cannot."""
    told = (backend for backend in backends if hasattr(backend, "outside"))
    found = (cast("Complete", backend).outside(contract, entry) for backend in told)
    return {engine: held._asdict() for each in found for engine, held in each.items()}


def _members(contract: Contract, asked: Asked, fused: bool) -> Iterator[str]:
    """The other tensors of the same fused GEMM of some engine, or of the same outer scale."""
    own = asked.entry.tensor
    for entry in contract.entries:
        other = entry.tensor
        if (other.path, other.parameter) == (asked.path, own.parameter) or not other.is_gemm:
            continue
        shared = (
            set(own.fused) & set(other.fused) if fused else own.scale_group and own.scale_group == other.scale_group
        )
        if not shared:
            continue
        if own.experts is None or other.experts is None:
            yield other.name
        elif own.experts.start in other.experts:
            yield replace(other, experts=own.experts).name


def _held(outside: dict[str, str] | None) -> str:
    return f"{outside['name']} ({outside['why']})" if outside else "no module of its own"


def _lines(shown: dict[str, Any], entry: Entry) -> Iterator[str]:
    where = f"layer {shown['layer']}" if shown["layer"] is not None else "no decoder layer"
    yield f"{shown['tensor']}  [{', '.join(map(str, shown['shape']))}]  {shown['role']}, {where}"
    rows: list[tuple[str, str]] = [("decision", str(entry.decision)), ("rule", str(entry.cause))]
    rows += [("", f"{part} from {cause}") for part, cause in entry.clauses if cause != entry.cause]
    rows += [("beaten", str(cause)) for cause in entry.beaten]
    rows += [(engine, name or _held(shown["outside"].get(engine))) for engine, name in shown["names"].items()]
    rows += [("fused with", name) for name in shown["fused_with"]]
    rows += [("shares scale with", name) for name in shown["shares_scale_with"]]
    before = ""
    for word, text in rows:
        yield f"  {'' if word == before else word:<17}  {text}".rstrip()
        before = word
