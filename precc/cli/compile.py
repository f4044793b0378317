"""`precc compile`: what each engine needs to run a policy on a model."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import Any, NamedTuple

from precc.backend import Artifact, Backend
from precc.cli.arguments import ArgumentParser
from precc.cli.config import fill
from precc.cli.deciding import read_policy_file
from precc.cli.errors import UsageError
from precc.cli.output import check_overwrite, differences, output_files, write_output
from precc.cli.paths import policy_files, policy_path, shown
from precc.cli.planning import make_plan, print_plan
from precc.cli.reporting import show_beside
from precc.cli.subjects import Targets, read_models, settings
from precc.cli.terminal import print_json
from precc.cli.upstream import Upstream, add_upstream, complain, judge, print_upstream, upstream_to_json
from precc.diagnostics import Diagnostic
from precc.diagnostics.json import to_json
from precc.front import read_policy
from precc.graph.model import ModelGraph
from precc.pipeline import Compilation, compile_read

DESCRIPTION = """\
Compile a policy for a model: decide every tensor, write what each engine needs, read it back by the engine's own
rules and compare. With --upstream the installed engines' own code is asked as well. Without -o nothing is written."""
EXAMPLES = """\
  precc compile nvfp4_rl --model qwen3-30b-a3b -o out
  precc compile policy.prec --model ./checkpoint --target sglang --rollout "tp=8 ep=8" -o out
  precc compile --check policies/*.prec --model deepseek-v3    compile and read back, write nothing
  precc compile --check policy.prec --model deepseek-v3 -o out  is the folder up to date?
  precc compile policy.prec --model deepseek-v3 --upstream -o out  write it if the engines agree, too

JSON: the plan (`precc plan --help`), plus {artifacts: [{target, path, sha256}], verified: {TARGET: {tensors,
agree}}, findings: [as lint]}; a policy with errors: {artifacts, verified, findings}. With --upstream also {upstream:
as `precc verify`}. Several files or models: a list of these, each with its `file` and `model`."""


class Compiled(NamedTuple):
    """One policy on one model: what came of it, and the files to write; none if it has errors."""

    file: str
    model: ModelGraph
    done: Compilation
    files: list[Artifact]
    stale: list[str]
    upstream: Upstream | None = None

    @property
    def findings(self) -> list[Diagnostic]:
        return [*self.done.findings, *(self.upstream.findings if self.upstream else ())]

    @property
    def status(self) -> int:
        """Status 2 where an engine was to judge and could not; 1 for errors, and for a folder that is out of date."""
        return max(int(self.done.has_errors or bool(self.stale)), self.upstream.status if self.upstream else 0)


def configure(parser: ArgumentParser) -> None:
    """The arguments of `compile`."""
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="a policy file or a ready policy's name; with --check several"
    )
    parser.add_models()
    parser.add_targets()
    parser.add_layouts()
    parser.add_argument("-o", "--output", metavar="DIR", help="the folder to write; an earlier compile's is replaced")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; with -o, exit with 1 if DIR is out of date"
    )
    add_upstream(parser)
    parser.add_output_format()


def run(options: Namespace) -> int:
    """This compiles, and writes or reports."""
    fill(options, options.files[0])
    files = policy_files(options.files) if options.check else [policy_path(file) for file in options.files]
    models = read_models(options.models)
    _check_arguments(options, files, models)
    if options.output and not options.check:
        check_overwrite(options.output)
    targets = Targets(options)
    results = [_compile(file, model, targets, options) for file in files for model in models]
    if options.output and not options.check and not results[0].status:
        write_output(options.output, results[0].files)
    _show(results, options)
    return max(result.status for result in results)


def _check_arguments(options: Namespace, files: Sequence[str], models: Sequence[ModelGraph]) -> None:
    if not models:
        raise UsageError(
            "a compile needs a model", "name one with --model, or list `models` in [tool.precc] of pyproject.toml"
        )
    if len(files) * len(models) > 1 and (options.output or not options.check):
        raise UsageError("a compile is of one policy for one model", "several go with --check and without -o")


def _compile(file: str, model: ModelGraph, targets: Targets, options: Namespace) -> Compiled:
    source = read_policy_file(file)
    read = policy, _ = read_policy(source)
    backends = targets.backends(policy)
    done = compile_read(read, model, backends, settings(options, complete=targets.are_all(policy)))
    files = [] if done.has_errors else _files(done, backends)
    stale = differences(options.output, files) if options.check and options.output and files else []
    return Compiled(file, model, done, files, stale, _judge(done, backends) if options.upstream else None)


def _judge(done: Compilation, backends: Sequence[Backend]) -> Upstream | None:
    """What the engines say of the artifacts; None where errors left none."""
    if done.binding is None or done.has_errors:
        return None
    artifacts = {artifact.path: artifact.text for emission in done.emissions for artifact in emission.artifacts}
    return judge(done.binding.contract, backends, artifacts)


def _files(done: Compilation, backends: Sequence[Backend]) -> list[Artifact]:
    assert done.binding is not None
    return output_files(done, done.binding.contract, backends)


def _show(results: Sequence[Compiled], options: Namespace) -> None:
    if options.output_format == "json":
        shown = [_to_json(result) for result in results]
        for result in results:
            complain(result.upstream or Upstream())
        if len(shown) == 1:
            print_json(shown[0])
        else:
            print_json([{"file": r.file, "model": r.model.name, **s} for r, s in zip(results, shown, strict=True)])
        return
    for result in results:
        show_beside(result.findings)
        if options.check:
            _print_check(result)
        elif result.status:
            _print_upstream(result)
        else:
            _print_compile(result, options)


def _to_json(result: Compiled) -> dict[str, Any]:
    done = result.done
    return {
        **(make_plan(done.binding) if done.binding is not None else {}),
        "artifacts": [
            {"target": emission.target, "path": artifact.path, "sha256": artifact.sha256}
            for emission in done.emissions
            for artifact in emission.artifacts
        ],
        "verified": {e.target: {"tensors": e.tensors, "agree": e.agree} for e in done.emissions if e.artifacts},
        "findings": [to_json(finding) for finding in result.findings],
        **({} if result.upstream is None else {"upstream": upstream_to_json(result.upstream)}),
    }


def _print_upstream(result: Compiled) -> None:
    if result.upstream is not None:
        print_upstream(result.upstream)


def _print_check(result: Compiled) -> None:
    where = f"{shown(result.file)} on {result.model.name}"
    if result.done.has_errors:
        print(f"{where}: does not compile")
    elif result.stale:
        print(f"{where}:", *result.stale, sep="\n  ")
    else:
        agreed = (f"{e.target} {e.agree:,} of {e.tensors:,} tensors agree" for e in result.done.emissions)
        print(f"{where}: {', '.join(agreed)}")
    _print_upstream(result)


def _print_compile(result: Compiled, options: Namespace) -> None:
    done = result.done
    assert done.binding is not None
    print_plan(make_plan(done.binding), done.policy.name, done.binding.model)
    print()
    for emission in done.emissions:
        print(f"{emission.target}: {emission.agree:,} of {emission.tensors:,} tensors read back and agree")
    _print_upstream(result)
    print(f"wrote {options.output}:" if options.output else "would write:")
    for file in result.files:
        print(f"  {file.path}")
