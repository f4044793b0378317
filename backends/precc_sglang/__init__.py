"""SGLang as a target: the checkpoint's quantization config, the server's arguments and its environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from precc.backend import Artifact, Attestation, Foreign, Judgement, Outside, Reading
from precc.contract import Contract, Entry
from precc.graph.model import ModelGraph
from precc_sglang.drafts import drafted_as_first, is_drafted_as_first
from precc_sglang.emission import artifacts
from precc_sglang.methods import choice_of
from precc_sglang.names import module_of
from precc_sglang.reading import read_back
from precc_sglang.served import Served, decides
from precc_sglang.versions import ENGINES, release_of


class SGLang:
    """The backend `sglang`."""

    name = "sglang"
    engines: Mapping[str, tuple[str, ...]] = ENGINES
    rules = "precc_sglang.rules"

    def names(self, contract: Contract, entry: Entry) -> Mapping[str, str]:
        """The prefix under which SGLang's class asks for the tensor's quantization."""
        choice = choice_of(contract)
        if choice is None or is_drafted_as_first(entry.tensor, choice.built):
            return {}
        module = module_of(entry.tensor, choice.built)
        return {} if module is None else {"sglang": module.prefix}

    def outside(self, contract: Contract, entry: Entry) -> Mapping[str, Outside]:
        """The prefix in a draft class whose layer has the names of the decoder's first."""
        choice = choice_of(contract)
        if choice is None or not is_drafted_as_first(entry.tensor, choice.built):
            return {}
        held = drafted_as_first(entry.tensor, choice.built)
        return {} if held is None else {"sglang": held}

    def required(self, contract: Contract) -> Mapping[str, str]:
        """The FlashInfer that the contract's SGLang requires."""
        return {"flashinfer": release_of(contract.rollout).flashinfer}

    def emit(self, contract: Contract) -> tuple[Artifact, ...]:
        return tuple(artifacts(contract))

    def decides(self, contract: Contract) -> Sequence[Served]:
        return decides(contract)

    def read_back(self, contract: Contract, artifacts: Mapping[str, str]) -> Sequence[Reading]:
        return read_back(contract, artifacts)

    def upstream(self, contract: Contract, artifacts: Mapping[str, str]) -> Judgement:
        """This asks the installed SGLang what it makes of the artifacts."""
        from precc_sglang.upstream import upstream

        return upstream(contract, artifacts)

    def read_foreign(
        self, model: ModelGraph, arguments: Sequence[str], environment: Mapping[str, str], recipes: Mapping[str, str]
    ) -> Foreign:
        """This reads what a compile wrote for a server, without its contract."""
        from precc_sglang.foreign import read_foreign

        return read_foreign(model, arguments, environment, recipes)

    def launches(self, arguments: Sequence[str]) -> bool:
        """Whether a launch line starts a server, or passes its arguments on."""
        from precc_sglang import launch

        return launch.launches(arguments)

    def launched(self, contract: Contract, arguments: Sequence[str]) -> Contract:
        """The contract under the parallel sizes of a launch line."""
        from precc_sglang import launch

        return launch.laid_out(contract, arguments)

    def attest_launch(
        self, contract: Contract, arguments: Sequence[str], environment: Mapping[str, str]
    ) -> Attestation:
        """This compares a launch line and its environment with `sglang/`."""
        from precc_sglang import launch

        return launch.attest_launch(contract, arguments, environment)


backend = SGLang()


def attest(subject: object, contract: Contract, kv_cache_dtype: object = None) -> Attestation:
    """This compares a model that is loaded in this process with a contract; see `precc_sglang.attesting`."""
    from precc_sglang import attesting

    return attesting.attest(subject, contract, kv_cache_dtype)


__all__ = ["SGLang", "attest", "backend"]
