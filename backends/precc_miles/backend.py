"""The target: what `precc` calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from precc_miles.profile import ENGINES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from precc.backend import Artifact, Foreign, Reading
    from precc.contract import Contract, Entry
    from precc.graph.model import ModelGraph
    from precc_miles.stages import Staged


class MilesBackend:
    """Miles: arguments and environment of converter, trainer, live export and rollout.

    A policy is compiled for it where it is asked for: it takes the place of other targets, and says less than they.
    """

    name: str = "miles"
    engines: Mapping[str, tuple[str, ...]] = ENGINES
    rules: str = "precc_miles.rules"
    on_request: bool = True
    beneath: tuple[str, ...] = ("te", "sglang")

    def names(self, contract: Contract, entry: Entry) -> Mapping[str, str]:
        """The parameter's name, as the live export sees it, in a contract that is for Miles."""
        if contract.targets is None or self.name not in contract.targets:
            return {}
        from precc_miles.names import is_latent, linear_of

        linear = linear_of(entry.tensor, is_latent(contract.model))
        return {} if linear is None else {"miles": linear.parameter}

    def emit(self, contract: Contract) -> tuple[Artifact, ...]:
        """This writes `miles/`."""
        from precc_miles import emission

        return emission.emit(contract)

    def decides(self, contract: Contract) -> tuple[Staged, ...]:
        """What each stage is to do with each entry."""
        from precc_miles.choosing import choose
        from precc_miles.stages import decided

        drafts = choose(contract).drafts
        return tuple(decided(entry, drafts) for entry in contract.entries)

    def read_back(self, contract: Contract, artifacts: Mapping[str, str]) -> tuple[Reading, ...]:
        """This reads `miles/` by the rules of its four stages."""
        from precc_miles.reading import read_back

        return read_back(contract, artifacts)

    def read_foreign(
        self, model: ModelGraph, arguments: Sequence[str], environment: Mapping[str, str], recipes: Mapping[str, str]
    ) -> Foreign:
        """This reads a converter's command, and the run that its checkpoint is for, as Miles does."""
        from precc_miles.foreign import read_foreign

        return read_foreign(model, arguments, environment, recipes)
