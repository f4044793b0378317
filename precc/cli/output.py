"""The folder that a compile writes: its files, its manifest, and how it is put in place whole."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from precc import __version__
from precc.backend import Artifact, Backend, versions_for
from precc.cli.errors import UsageError
from precc.cli.json_text import json_text
from precc.cli.swap import swap
from precc.contract import Contract, contract_to_json
from precc.diagnostics import Diagnostic
from precc.pipeline import Compilation
from precc.records import replace
from precc.source import Span

CONTRACT = "contract.json"
MANIFEST = "MANIFEST.json"
REPORT = "report.html"


def output_files(done: Compilation, contract: Contract, backends: Sequence[Backend]) -> list[Artifact]:
    """Every file of a compile, the manifest last. Nothing in them depends on where or when they are made."""
    from precc.cli.report_html import render_report

    findings = [_recorded(finding) for finding in done.findings]
    report = render_report(contract, findings, f"{contract.policy} on {contract.model.name}")
    files = [Artifact(CONTRACT, json_text(contract_to_json(contract))), Artifact(REPORT, report)]
    files += [artifact for emission in done.emissions for artifact in emission.artifacts]
    return [*files, Artifact(MANIFEST, _manifest(contract, backends, files))]


def _manifest(contract: Contract, backends: Sequence[Backend], files: Sequence[Artifact]) -> str:
    shown = {
        "digest": contract.digest,
        "precc": __version__,
        "policy": contract.policy,
        "model": contract.model.name,
        "targets": [backend.name for backend in backends],
        "engines": {backend.name: versions_for(backend, contract) for backend in backends},
        "layouts": _layouts(contract, {k: v for b in backends for k, v in versions_for(b, contract).items()}),
        "files": {file.path: file.sha256 for file in sorted(files, key=lambda file: file.path)},
    }
    return json_text(shown)


def _layouts(contract: Contract, versions: Mapping[str, str | None]) -> dict[str, Any]:
    """The layouts as they hold: versions and sizes that nobody stated are filled in."""
    rollout = {**contract.rollout.to_json(), "etp": contract.rollout.expert_tp}
    sides = {"train": contract.train.to_json(), "rollout": rollout}
    return {side: {key: versions.get(key, word) for key, word in layout.items()} for side, layout in sides.items()}


def _recorded(finding: Diagnostic) -> Diagnostic:
    """A finding whose places are named as the contract names them."""
    labels = tuple(replace(label, span=_moved(label.span)) for label in finding.labels)
    return replace(finding, span=finding.span and _moved(finding.span), labels=labels)


def _moved(span: Span) -> Span:
    source = span.source
    return replace(span, source=replace(source, path=source.recorded or source.path))


def write_output(folder: str, files: Sequence[Artifact]) -> None:
    """This writes a compile's files in one step: an interrupted one leaves what was there before."""
    check_overwrite(folder)
    with swap(os.path.realpath(folder)) as partial:
        for file in files:
            _write(os.path.join(partial, file.path), file)


def _write(path: str, file: Artifact) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8", newline="") as stream:
        stream.write(file.text)
        os.fchmod(stream.fileno(), (0o777 if file.executable else 0o666) & ~_umask())


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def check_overwrite(folder: str) -> None:
    """Only what an earlier compile wrote, and nothing else, is replaced."""
    real = os.path.realpath(folder)
    if not os.path.lexists(real):
        return
    if not os.path.isdir(real):
        raise UsageError(f"`{folder}` is a file", "name a folder for the output")
    inside = sorted(_files_below(real))
    if not inside:
        return
    known = _listed(real)
    if known is None:
        raise UsageError(
            f"`{folder}` holds files that precc did not write (there is no {MANIFEST} of a compile)",
            "name an empty or a new folder",
        )
    strange = next((path for path in inside if path not in known), None)
    if strange is not None:
        raise UsageError(
            f"`{folder}` holds `{strange}`, which precc did not write", "move it away, or name a new folder"
        )


def _files_below(folder: str) -> list[str]:
    return [
        os.path.relpath(os.path.join(where, name), folder).replace(os.sep, "/")
        for where, _, names in os.walk(folder)
        for name in names
    ]


def _listed(folder: str) -> set[str] | None:
    """The files that the manifest of a folder lists, itself among them; None if it has no manifest of a compile."""
    try:
        manifest = read_manifest(folder)
    except UsageError:
        return None
    return {MANIFEST, *manifest["files"]}


def read_manifest(folder: str) -> Mapping[str, Any]:
    """The manifest of a compiled folder."""
    path = os.path.join(folder, MANIFEST)
    try:
        with open(path, encoding="utf-8") as file:
            shown = json.load(file)
    except FileNotFoundError:
        raise UsageError(f"`{folder}` was not written by a compile: it has no {MANIFEST}") from None
    except (ValueError, RecursionError):
        raise UsageError(f"{path}: not valid JSON") from None
    if not (isinstance(shown, dict) and {"digest", "precc", "targets", "files"} <= shown.keys()):
        raise UsageError(f"{path}: not the manifest of a compile")
    if not (isinstance(shown["files"], dict) and isinstance(shown["targets"], list)):
        raise UsageError(f"{path}: not the manifest of a compile")
    return shown


def differences(folder: str, files: Sequence[Artifact]) -> list[str]:
    """The files of a folder that a compile would write otherwise, or not at all."""
    wanted = {file.path: file.text for file in files}
    present = set(_files_below(folder)) if os.path.isdir(folder) else set()
    missing = [f"{path} is missing" for path in sorted(wanted.keys() - present)]
    extra = [f"{path} would not be written" for path in sorted(present - wanted.keys())]
    both = sorted(wanted.keys() & present)
    return [*missing, *extra, *(f"{path} is out of date" for path in both if _text(folder, path) != wanted[path])]


def _text(folder: str, path: str) -> str | None:
    try:
        with open(os.path.join(folder, path), encoding="utf-8", newline="") as file:
            return file.read()
    except UnicodeDecodeError:
        return None


def digest_of(data: bytes) -> str:
    """The digest that a manifest lists for a file."""
    return sha256(data).hexdigest()
