"""Whether the installed SGLang can judge a contract's artifacts: the versions that are stated, modelled, installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from precc.backend import EngineUnavailable, Unsupported, installed_versions, select_version
from precc.contract import Contract
from precc_sglang.emission import artifacts
from precc_sglang.upstream.process import INSTALL
from precc_sglang.versions import SGLANG, sglang_version

DISTRIBUTIONS = {"sglang": "sglang"}


def judging_versions(contract: Contract, path: Sequence[str] = ()) -> Mapping[str, str]:
    """The versions in the folders of `path`, or else installed, where they may judge the contract.

    Raises EngineUnavailable.
    """
    installed = {**installed_versions(DISTRIBUTIONS), **_versions_in(path)}
    version = installed.get("sglang")
    if version is None:
        raise EngineUnavailable("SGLang is not installed", INSTALL)
    if select_version(version, SGLANG) is None:
        raise EngineUnavailable(
            f"SGLang {version} is installed, whose rules are not modelled; modelled are {', '.join(SGLANG)}",
            f"`pip install --no-deps sglang=={SGLANG[0]}`",
        )
    _check_stated(contract, version)
    return installed


def _versions_in(path: Sequence[str]) -> Mapping[str, str]:
    from importlib.metadata import distributions

    found = ((engine, distributions(name=name, path=list(path))) for engine, name in DISTRIBUTIONS.items())
    return {engine: one.version for engine, ones in found for one in ones}


def _check_stated(contract: Contract, installed: str) -> None:
    wanted = sglang_version(contract.rollout)
    if wanted == installed:
        return
    if contract.rollout.sglang or not _emits_alike(contract, installed):
        raise EngineUnavailable(
            f"the artifacts are for SGLang {wanted}, and {installed} is installed, which reads them otherwise",
            f"compile with `--rollout sglang={installed}`, or install {wanted}: docs/verification.md, "
            "`Installing the engines`",
        )


def _emits_alike(contract: Contract, version: str) -> bool:
    """Whether the artifacts for a version are those for the version that is assumed."""
    stated = replace(contract, rollout=contract.rollout.with_settings({"sglang": version}))
    try:
        return list(artifacts(stated)) == list(artifacts(contract))
    except Unsupported:
        return False
