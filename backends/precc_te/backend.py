"""The target: what `precc` calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from precc.backend import Artifact, Attestation, Foreign, Judgement, Outside, Reading, Unsupported
from precc.contract import Contract, Entry
from precc.graph.model import ModelGraph
from precc_te import emission, reading
from precc_te.modules import modules_of
from precc_te.names import Names, paths
from precc_te.precision import Refusal, TePrecision, Unaddressed
from precc_te.versions import ENGINES, engine_of


class TeBackend:
    """Megatron-Core with TransformerEngine: arguments, per-module recipes, environment."""

    name: str = "te"
    engines: Mapping[str, tuple[str, ...]] = ENGINES
    rules: str = "precc_te.rules"

    def names(self, contract: Contract, entry: Entry) -> Mapping[str, str]:
        """The path of the linear layer that multiplies the tensor, as at one pipeline stage with grouped experts."""
        module = Names(contract.model).module(entry.tensor)
        if module is None:
            return {}
        layers = range(module.layer or 0, (module.layer or 0) + 1)
        path, _ = next(paths(module, layers, engine_of(contract.train).megatron.mtp_inner))
        return {"megatron": path}

    def outside(self, contract: Contract, entry: Entry) -> Mapping[str, Outside]:
        """The parameter that holds what no recipe matches."""
        from precc_te.outside import WHY, parameter_of

        name = parameter_of(contract, entry)
        return {} if name is None else {"megatron": Outside(name, WHY)}

    def emit(self, contract: Contract) -> tuple[Artifact, ...]:
        """This writes `te/`."""
        return emission.emit(contract)

    def decides(self, contract: Contract) -> tuple[TePrecision | Unaddressed, ...]:
        """The recipe of the linear layer that multiplies each tensor, or that there is none."""
        modules = modules_of(contract)
        if modules.refused:
            raise Unsupported(*modules.refusals())
        return tuple(line.precision for line in modules.lines if not isinstance(line.precision, Refusal))

    def read_back(self, contract: Contract, artifacts: Mapping[str, str]) -> tuple[Reading, ...]:
        """This reads `te/` as Megatron and TransformerEngine do."""
        return reading.read_back(contract, artifacts)

    def launches(self, arguments: Sequence[str]) -> bool:
        """Whether a launch line starts Megatron, or passes its arguments on."""
        from precc_te import launch

        return launch.launches(arguments)

    def launched(self, contract: Contract, arguments: Sequence[str]) -> Contract:
        """The contract under the parallel sizes of a launch line."""
        from precc_te.launch import values_of
        from precc_te.launch_layout import laid_out

        return laid_out(contract, values_of(arguments))

    def attest_launch(
        self, contract: Contract, arguments: Sequence[str], environment: Mapping[str, str]
    ) -> Attestation:
        """This compares a launch line and its environment with `te/`."""
        from precc_te import launch

        return launch.attest_launch(contract, arguments, environment)

    def read_foreign(
        self, model: ModelGraph, arguments: Sequence[str], environment: Mapping[str, str], recipes: Mapping[str, str]
    ) -> Foreign:
        """This reads a trainer's launch that no contract wrote, as Megatron and TransformerEngine do."""
        from precc_te.foreign import read_foreign

        return read_foreign(model, arguments, environment, recipes)

    def upstream(self, contract: Contract, artifacts: Mapping[str, str]) -> Judgement:
        """This starts the installed Megatron-Core and TransformerEngine with `te/`, and compares what is in force.

        Raises EngineUnavailable where they are not installed, or not in the versions that the artifacts are for.
        """
        from precc_te.upstream import Judge

        with Judge() as judge:
            return judge(contract, artifacts)
