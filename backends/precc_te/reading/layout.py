"""The numbers that a rank's own modules have: layers within a pipeline stage, experts within an expert rank."""

from __future__ import annotations

from precc.contract import Contract
from precc.records import record


@record
class Ranks:
    """How layers and experts are laid out over ranks, as far as their local numbers depend on it."""

    layers: int
    pipeline: int
    virtual: int
    experts: int
    expert_ranks: int

    def stage(self, layer: int) -> int:
        """The pipeline stage of a decoder layer, where the layers divide evenly and there are no virtual stages."""
        return layer // (self.layers // self.pipeline)

    def local_layers(self, layer: int) -> range:
        """The numbers that a layer may have in its own stage; all of them where the layout leaves it open."""
        chunks = self.pipeline * self.virtual
        if self.layers % chunks:
            return range(self.layers)
        local = layer % (self.layers // chunks)
        return range(local, local + 1)

    def local_experts(self, experts: range) -> tuple[range, ...]:
        """The numbers that a range of experts has on its ranks, each of which holds equally many in a row."""
        each = self.experts // self.expert_ranks if self.experts % self.expert_ranks == 0 else self.experts
        start, stop = experts.start % each, (experts.stop - 1) % each + 1
        if len(experts) >= each:
            return (range(each),)
        return (range(start, stop),) if start < stop else (range(start, each), range(stop))


def ranks_of(contract: Contract) -> Ranks:
    """The layout that a contract states."""
    train = contract.train
    return Ranks(contract.model.layers, train.pp, train.vpp, contract.model.expert_count, train.ep)
