"""`precc import`: a policy from what another tool wrote."""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from precc.cli.arguments import ArgumentParser
from precc.cli.config import fill
from precc.cli.errors import Refused, UsageError
from precc.cli.reporting import show_beside
from precc.cli.subjects import Targets, one_model
from precc.cli.terminal import print_json
from precc.diagnostics.json import to_json

if TYPE_CHECKING:
    from precc.graph.model import ModelGraph
    from precc.importing.importing import Imported
    from precc.importing.reading import Source
    from precc.importing.trying import Tried

DESCRIPTION = """\
Turn what another tool wrote into a policy that decides the same for every tensor: a checkpoint's config.json and
hf_quant_config.json, or the folder with both; a recipe; a trainer's files; launch flags. The file is read by that
tool's own matching rules. What no policy can say is refused, and rules that reach nothing or too much are told."""
EXAMPLES = """\
  precc import config.json                            the model is in the file
  precc import ./checkpoint -o policy.prec            both files of a folder, compared
  precc import hf_quant_config.json --model deepseek-v3

JSON: {tool, model, policy, tensors, rules, kv_cache, targets, source_rules: [{text, where, matched, beyond,
beaten}], findings: [as lint]}; policy is the text. What cannot be imported: {findings}."""


def configure(parser: ArgumentParser) -> None:
    """The arguments of `import`."""
    parser.add_argument("source", metavar="FILE", help="a file that another tool wrote, or a folder of them")
    parser.add_models(several=False)
    parser.add_argument("-o", "--output", metavar="FILE", help="the policy to write (default: standard output)")
    parser.add_targets()
    parser.add_output_format()


def run(options: Namespace) -> int:
    """This imports, and prints or writes the policy."""
    from precc.importing.detection import find_reader
    from precc.importing.importing import import_policy
    from precc.importing.reading import Unimportable
    from precc.importing.sources import read_source
    from precc.importing.trying import try_targets

    fill(options, options.output or ".")
    _check_output(options)
    try:
        source = read_source(options.source)
        find_reader(source)
        graph = _model(source, options)
        imported = import_policy(source, graph, _name(source, options))
    except Unimportable as problem:
        raise Refused(problem.findings) from None
    targets = Targets(options)
    backends = [targets.load(name) for name in options.targets] if options.targets else targets.standard()
    tried = try_targets(imported.text, graph, backends)
    _deliver(imported, tried, graph, options)
    return 0


def _check_output(options: Namespace) -> None:
    """This refuses an output that is a folder, in no folder, or the source itself."""
    if options.output is None:
        return
    if os.path.isdir(options.output):
        raise UsageError(f"`{options.output}` is a folder", "name the policy's file")
    folder = os.path.dirname(os.path.abspath(options.output))
    if not os.path.isdir(folder):
        raise UsageError(f"there is no folder `{folder}`", "make it first")
    both = (options.output, options.source)
    if all(map(os.path.exists, both)) and os.path.samefile(*both):
        raise UsageError(f"`{options.output}` is what is imported", "name another file")


def _model(source: Source, options: Namespace) -> ModelGraph:
    """The model that is named, or the one whose configuration the source is."""
    from precc.graph.config import describe
    from precc.graph.errors import ModelError
    from precc.importing.checkpoint import model_config

    if options.models:
        return one_model(options.models)
    said = model_config(source)
    if said is None:
        raise UsageError(
            f"`{source.path}` does not say which model it is for",
            "name one with --model; `precc models` lists the known ones",
        )
    try:
        return describe(said, source.path).graph(_stem(source))
    except ModelError as problem:
        raise UsageError(problem.message, problem.help[:1].lower() + problem.help[1:]) from None


_COMMON = frozenset(("config", "hf_quant_config", "recipe", "te_precision"))


def _stem(source: Source) -> str:
    """What a source is called: the folder, or the file where that has a name of its own."""
    path = Path(source.path).resolve()
    return path.name if source.is_folder else path.parent.name if path.stem in _COMMON else path.stem


def _name(source: Source, options: Namespace) -> str:
    name = Path(options.output).stem if options.output else _stem(source)
    return "".join(letter for letter in name if letter.isprintable() and letter not in '"\\') or "imported"


def _deliver(imported: Imported, tried: Tried, graph: ModelGraph, options: Namespace) -> None:
    from precc.cli.writing import write_file
    from precc.contract.wording import amount

    findings = [finding.on_model(graph.name) for finding in (*imported.findings, *tried.findings)]
    if options.output:
        write_file(options.output, tried.text)
    if options.output_format == "json":
        print_json({**_to_json(imported, tried, graph), "findings": [to_json(finding) for finding in findings]})
        return
    show_beside(findings)
    if options.output:
        rules, tensors = amount(imported.rules, "rule"), amount(imported.tensors, "tensor")
        print(f"{options.output}: {rules} for {tensors}, all compared")
    else:
        print(tried.text, end="")


def _to_json(imported: Imported, tried: Tried, graph: ModelGraph) -> dict[str, Any]:
    reading = imported.reading
    return {
        "tool": imported.tool,
        "model": graph.name,
        "policy": tried.text,
        "tensors": imported.tensors,
        "rules": imported.rules,
        "kv_cache": reading.kv_cache,
        "targets": list(tried.targets),
        "source_rules": [
            {
                "text": rule.text,
                "where": rule.where,
                "matched": rule.matched,
                "beyond": rule.beyond or None,
                "beaten": rule.beaten,
            }
            for rule in reading.rules
        ],
    }
