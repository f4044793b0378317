"""Whether the installed engines are those that a contract's artifacts are for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from precc.backend import EngineUnavailable, select_version, stated_version
from precc.contract import Contract
from precc.contract.wording import listed
from precc_te import emission
from precc_te.rules import p701_shared_indexers, p701_te_too_old, p702_dequantized_defeated
from precc_te.upstream.process import INSTALL
from precc_te.upstream.wire import Engines
from precc_te.versions import ENGINES, UNRELEASED, newest_released

TITLES = {"megatron_core": "Megatron-Core", "te": "TransformerEngine"}
DISTRIBUTIONS = {"megatron_core": "megatron-core", "te": "transformer-engine"}


def modelled_version(installed: str, modelled: tuple[str, ...]) -> str | None:
    """The modelled version that an installed one is: `2.19` for 2.19.0, `2.20.2` for itself; None for no other."""
    return next((version for version in modelled if f"{installed}.".startswith(f"{version}.")), None)


def judging(contract: Contract, installed: Engines) -> Contract:
    """The contract with the installed versions stated.

    Raises EngineUnavailable where an engine is not installed, not one whose rules are modelled, not the one that the
    contract states, or would be given other artifacts than the contract's.
    """
    found = {"megatron_core": installed.megatron_core, "te": installed.te}
    missing = [TITLES[engine] for engine, version in found.items() if not version]
    if missing:
        raise EngineUnavailable(f"{listed(missing)} {'is' if len(missing) == 1 else 'are'} not installed here", INSTALL)
    if installed.problem:
        raise EngineUnavailable(
            f"the code of Megatron-Core {installed.megatron_core} does not load: {installed.problem}", INSTALL
        )
    versions = {engine: _version(contract, engine, version) for engine, version in found.items()}
    _check_same(contract, found, versions)
    return replace(contract, train=contract.train.with_settings(versions))


def _version(contract: Contract, engine: str, installed: str) -> str:
    modelled = modelled_version(installed, ENGINES[engine])
    title, known = TITLES[engine], listed(ENGINES[engine], "or")
    if modelled is None:
        raise EngineUnavailable(
            f"{title} {installed} is installed, and precc knows the rules of {known}",
            f"install one of these, such as `{_install(engine, newest_released(engine))}`",
        )
    stated = stated_version(contract, engine)
    if stated and select_version(stated, ENGINES[engine]) != modelled:
        raise EngineUnavailable(
            f"the artifacts are for {title} {stated}, and {installed} is installed",
            f"compile with `--train {engine}={modelled}`{_or_install(engine, stated)}",
        )
    return modelled


def _or_install(engine: str, version: str) -> str:
    """The other way out, for a version that is released."""
    return "" if version in UNRELEASED else f", or `{_install(engine, version)}`"


def _install(engine: str, version: str) -> str:
    return f"pip install --no-deps '{DISTRIBUTIONS[engine]}=={version}'"


def _check_same(contract: Contract, installed: Mapping[str, str], versions: Mapping[str, str]) -> None:
    """Artifacts for the newest versions are judged by older ones only where these would be given the same."""
    for engine, version in versions.items():
        if stated_version(contract, engine):
            continue
        alone = replace(contract, train=contract.train.with_settings({engine: version}))
        if emission.emit(contract) != emission.emit(alone) or any(_refusals(alone)):
            raise EngineUnavailable(
                f"the artifacts are for {TITLES[engine]} {ENGINES[engine][0]}, and {installed[engine]} is installed, "
                "which runs this contract with others or not at all",
                f"compile with `--train {engine}={version}`, or `{_install(engine, newest_released(engine))}`",
            )


def _refusals(contract: Contract) -> Iterator[object]:
    """What this target's own rules about versions find."""
    yield from p701_shared_indexers.check(contract)
    yield from p701_te_too_old.check(contract)
    yield from p702_dequantized_defeated.check(contract)
