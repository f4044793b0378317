"""`precc attest`: whether a launch line, and the environment it starts in, run what was compiled."""

from __future__ import annotations

import argparse
import os
from argparse import Namespace
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from precc.cli.arguments import ArgumentParser
from precc.cli.errors import Refused, UsageError
from precc.cli.launching import Launch, read_launch
from precc.cli.subjects import Targets
from precc.cli.terminal import print_json
from precc.diagnostics import Diagnostic
from precc.records import replace

if TYPE_CHECKING:
    from precc.backend import Attestation, Backend, Launched
    from precc.contract import Contract

DESCRIPTION = """\
Check a launch line before anything starts: every argument and variable that the contract needs, none that defeats it.
Nothing is started."""
EXAMPLES = """\
  precc attest --contract out -- torchrun pretrain_gpt.py $(cat out/te/megatron.args) \\
      --te-precision-config-file out/te/te_precision.yaml
  precc attest --contract out -- python -m sglang.launch_server --config out/sglang/server.yaml
  precc attest --contract out --record run.jsonl -- "$@" && exec "$@"    at the end of a launch script

Which engines a line is for is seen from it. Variables are those of this process, changed by a leading `env`; of a Ray
job those that its `--runtime-env-json` sets.

JSON: {attested: {TARGET: {target, contract, engines: {ENGINE: VERSION}, modules, differences: [text]}}, findings: [as
lint]}; `modules` counts what was compared. --record adds one such target a line, with {time, precc} in front."""


def configure(parser: ArgumentParser) -> None:
    """The arguments of `attest`."""
    parser.add_argument(
        "--contract", required=True, metavar="FILE", help="a contract.json, or the folder that a compile wrote"
    )
    parser.add_argument(
        "--target",
        "-t",
        dest="targets",
        action="append",
        metavar="TARGET",
        help="check the line for this target (default: those that the line starts); may be repeated",
    )
    parser.add_argument("--record", metavar="FILE", help="append a line of JSON a target to FILE: the run's evidence")
    parser.add_output_format()
    parser.add_argument(
        "arguments", nargs=argparse.REMAINDER, metavar="-- ARGUMENTS", help="the launch line, behind `--`"
    )


def run(options: Namespace) -> int:
    """This compares a launch line with a contract and prints the differences."""
    from precc.backend import Unsupported

    launch = read_launch(options.arguments, os.environ)
    contract = _contract(options.contract)
    backends = _launched(contract, launch.words, options)
    try:
        attested = [_attest(backend, contract, launch, _folder(options.contract)) for backend in backends]
    except Unsupported as refusal:
        raise Refused(refusal.findings) from None
    if options.record:
        _record(options.record, attested)
    findings = [finding for attestation in attested for finding in attestation.findings]
    if options.output_format == "json":
        _print_json(attested, findings)
    else:
        _print(attested, findings)
    return int(bool(findings))


def _attest(backend: Launched, contract: Contract, launch: Launch, folder: str) -> Attestation:
    """What the backend finds, and what the compiler's own rules say of the layout that the line runs in."""
    done = backend.attest_launch(contract, launch.words, launch.environment)
    findings = (*done.findings, *_of_layout(contract, backend.launched(contract, launch.words)))
    return replace(done, findings=tuple(_within(finding, done.target, folder) for finding in findings))


def _of_layout(contract: Contract, launched: Contract) -> Iterator[Diagnostic]:
    """The errors that the contract has under the sizes of the line, and not under those that it was compiled for."""
    from precc.rules import check_contract

    known = {finding.message for finding in check_contract(contract)}
    for finding in check_contract(launched):
        if finding.is_error and finding.message not in known:
            yield replace(finding, message=f"in the layout of the line, {finding.message}", span=None)


def _within(finding: Diagnostic, target: str, folder: str) -> Diagnostic:
    """The same, with the folder that was named in the place of the one that backends speak of."""
    from precc.backend import COMPILED

    if finding.help is None:
        return finding
    return replace(finding, help=finding.help.replace(f"{COMPILED}/{target}/", f"{folder}/{target}/"))


def _folder(contract: str) -> str:
    return contract.rstrip("/") if os.path.isdir(contract) else os.path.dirname(contract) or "."


# --- contract and targets ----------------------------------------------------------------------------


def _contract(path: str) -> Contract:
    from precc.contract import load_contract
    from precc.contract.serial import ContractError

    try:
        return load_contract(path)
    except ContractError as problem:
        raise UsageError(str(problem), "compile the policy again") from None
    except (UnicodeDecodeError, RecursionError):
        raise UsageError(f"{path}: not a contract") from None


def _launched(contract: Contract, words: Sequence[str], options: Namespace) -> list[Launched]:
    """The targets to check a line for: those that are asked for, or those that it starts."""
    targets = Targets(Namespace(targets=options.targets, target_defaults=None))
    if options.targets:
        return [_one(targets.load(name), contract) for name in sorted(set(options.targets))]
    started = {backend.name: backend for backend in targets.every() if _starts(backend, words)}
    wanted = [_one(backend, contract) for name, backend in started.items() if contract.wants(name)]
    if not wanted:
        line = f"starts {', '.join(started)}, and the contract is not for it" if started else "starts no known engine"
        raise UsageError(f"the line {line}", "name the target to check it for with --target")
    return wanted


def _starts(backend: Backend, words: Sequence[str]) -> bool:
    return hasattr(backend, "launches") and cast("Launched", backend).launches(words)


def _one(backend: Backend, contract: Contract) -> Launched:
    if not hasattr(backend, "attest_launch"):
        raise UsageError(f"the target {backend.name} starts no engine", "there is no launch line to check")
    if not contract.wants(backend.name):
        raise UsageError(
            f"the contract is for {', '.join(contract.targets or ()) or 'no target'}, not for {backend.name}",
            "compile it for that target",
        )
    return cast("Launched", backend)


# --- what was found ----------------------------------------------------------------------------------


def _record(path: str, attested: Sequence[Attestation]) -> None:
    """This appends the evidence: one line of JSON a target, in one write."""
    import json
    from datetime import UTC, datetime

    from precc import __version__

    head = {"time": datetime.now(UTC).isoformat(timespec="seconds"), "precc": __version__}
    lines = [json.dumps({**head, **attestation.to_json()}, ensure_ascii=False) for attestation in attested]
    with open(path, "a", encoding="utf-8") as file:
        file.write("".join(f"{line}\n" for line in lines))


def _print_json(attested: Sequence[Attestation], findings: Sequence[Diagnostic]) -> None:
    from precc.diagnostics.json import to_json

    records: dict[str, Any] = {attestation.target: attestation.to_json() for attestation in attested}
    print_json({"attested": records, "findings": [to_json(finding) for finding in findings]})


def _print(attested: Sequence[Attestation], findings: Sequence[Diagnostic]) -> None:
    from precc.diagnostics import text

    print(text.render(findings), end="")
    for line in _lines(attested):
        print(line)
    print(text.summary(findings))


def _lines(attested: Sequence[Attestation]) -> Iterator[str]:
    for one in attested:
        many = len(one.findings)
        differ = "all as" if not many else f"{many} {'differs' if many == 1 else 'differ'} from what"
        yield f"{one.target}: {one.modules} arguments and variables, {differ} contract {one.digest[:12]} needs"
