"""`precc verify`: whether a compiled folder still says what its contract says."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from precc.backend import Backend, Unsupported
from precc.cli.arguments import ArgumentParser
from precc.cli.errors import UsageError
from precc.cli.output import CONTRACT, MANIFEST, digest_of, read_manifest
from precc.cli.subjects import Targets
from precc.cli.terminal import print_json
from precc.cli.upstream import Upstream, add_upstream, complain, judge, print_upstream, upstream_to_json
from precc.contract import Contract, load_contract
from precc.contract.serial import ContractError
from precc.contract.wording import tensors_of
from precc.diagnostics import Diagnostic, error
from precc.diagnostics.json import to_json
from precc.pipeline import Verification, read_back

DESCRIPTION = """\
Check a compiled folder: every file against its manifest, every artifact by its engine's own rules against the
contract, tensor by tensor. With --upstream the installed engines' own code is asked as well."""
EXAMPLES = """\
  precc verify out
  precc verify out --upstream
  precc verify out --output-format json

JSON: {checked, agree, findings: [as lint]}; tensors are counted once a target. With --upstream also {upstream:
{TARGET: {engines: {ENGINE: VERSION}, tensors, agree, checks}}}: {unavailable, help} for a target whose engine could
not judge, which is status 2; null for one that has no engine."""

CHANGED = "P509"


class Report(NamedTuple):
    """What was compared, by target, and what was found; `refused` are the targets whose artifacts say nothing."""

    readings: Mapping[str, Verification]
    findings: list[Diagnostic]
    upstream: Upstream | None = None
    refused: frozenset[str] = frozenset()

    @property
    def checked(self) -> int:
        return sum(reading.tensors for reading in self.readings.values())

    @property
    def agree(self) -> int:
        return sum(reading.agree for reading in self.readings.values())

    @property
    def status(self) -> int:
        return max(int(bool(self.findings)), self.upstream.status if self.upstream else 0)


def configure(parser: ArgumentParser) -> None:
    """The arguments of `verify`."""
    parser.add_argument("folder", metavar="DIR", help="a folder that `precc compile -o` wrote")
    add_upstream(parser)
    parser.add_output_format()


def run(options: Namespace) -> int:
    """This verifies a folder and prints what was found."""
    if not os.path.isdir(options.folder):
        raise UsageError(f"there is no folder `{options.folder}`")
    report = verify(options.folder, options.upstream)
    if options.output_format == "json":
        print_json(_to_json(report))
    else:
        _print(report)
    return report.status


def verify(folder: str, upstream: bool = False) -> Report:
    """This compares the files of a folder with its manifest, and its artifacts with its contract.

    With `upstream` the engines are asked what they make of the same artifacts.
    """
    manifest = read_manifest(folder)
    findings = list(_changed(folder, manifest))
    try:
        contract = load_contract(os.path.join(folder, CONTRACT))
    except FileNotFoundError:
        return Report({}, findings)
    except (ContractError, UnicodeDecodeError, RecursionError) as problem:
        return Report({}, [*findings, error(CHANGED, str(problem), help="compile the policy again")])
    if contract.digest != manifest["digest"]:
        findings.append(error(CHANGED, f"{MANIFEST} and {CONTRACT} have different digests", help="compile again"))
    targets = Targets(Namespace(targets=None, target_defaults=None))
    backends = [targets.load(str(name)) for name in manifest["targets"]]
    artifacts = {path: text for backend in backends for path, text in _artifacts(folder, backend, manifest).items()}
    readings, refused = {}, set()
    for backend in backends:
        try:
            readings[backend.name] = _read_back(contract, backend, artifacts)
        except Unsupported as refusal:
            readings[backend.name] = Verification(tensors_of(contract.entries), 0, refusal.findings)
            refused.add(backend.name)
    for reading in readings.values():
        findings += reading.findings
    judged = judge(contract, backends, artifacts) if upstream else None
    return Report(readings, findings + (judged.findings if judged else []), judged, frozenset(refused))


def _changed(folder: str, manifest: Mapping[str, Any]) -> Iterator[Diagnostic]:
    """The files that are not what the manifest lists."""
    for path, digest in manifest["files"].items():
        try:
            with open(os.path.join(folder, path), "rb") as file:
                same = digest_of(file.read()) == digest
        except FileNotFoundError:
            yield error(CHANGED, f"{path} is missing", help="compile the policy again")
        else:
            if not same:
                yield error(CHANGED, f"{path} was changed after it was written", help="compile the policy again")


def _artifacts(folder: str, backend: Backend, manifest: Mapping[str, Any]) -> dict[str, str]:
    """The files of one target that are there, path → text."""
    artifacts = {}
    for path in manifest["files"]:
        where = os.path.join(folder, path)
        if path.startswith(f"{backend.name}/") and os.path.isfile(where):
            with open(where, encoding="utf-8", errors="replace", newline="") as file:
                artifacts[path] = file.read()
    return artifacts


def _read_back(contract: Contract, backend: Backend, artifacts: Mapping[str, str]) -> Verification:
    return read_back(contract, backend, {p: text for p, text in artifacts.items() if p.startswith(f"{backend.name}/")})


def _to_json(report: Report) -> dict[str, Any]:
    shown = {
        "checked": report.checked,
        "agree": report.agree,
        "findings": [to_json(finding) for finding in report.findings],
    }
    if report.upstream is None:
        return shown
    complain(report.upstream)
    return {**shown, "upstream": upstream_to_json(report.upstream)}


def _print(report: Report) -> None:
    from precc.diagnostics import text

    print(text.render(report.findings), end="")
    for name, reading in report.readings.items():
        agree = f"{reading.agree:,} of {reading.tensors:,} tensors agree"
        whole = f"the artifacts are refused as a whole, so none of {reading.tensors:,} tensors is decided"
        print(f"{name}: {whole if name in report.refused else agree}")
    if report.upstream is not None:
        print_upstream(report.upstream)
    unjudged = report.upstream.unjudged if report.upstream is not None else {}
    print(text.summary(report.findings) + (f"; not judged: {', '.join(unjudged)}" if unjudged else ""))
