"""SGLang's model without SGLang's server, so that the example runs on a machine without a GPU.

Real are the model class, its parameters, the quantization methods that made them, and `load_weights`. Not here are
the scheduler and its processes, and what `end_weight_update` does on a GPU: the kernels' own layouts. Like the
server, it takes tensors between begin and end only.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from precc_sglang.upstream import frontdoor, standin
from precc_sglang.upstream.releases import boot

BLACKWELL = 100
SUCCESS = True, "Success"


class CpuEngine:
    """The three calls of `sglang.Engine` on a model that SGLang built from a folder's `config.json`.

    The folder also has the compiled `server.yaml`. One engine a process.
    """

    def __init__(self, folder: Path) -> None:
        standin.install()
        boot().start()
        self._open = False
        self.received: dict[str, Tensor] = {}
        with boot().gpu(BLACKWELL):
            made = frontdoor.make(frontdoor.server(str(folder)), "cpu")
        self.model: Any = made.model
        self.settings = made.settings

    def begin_weight_update(self, selector: str = "all") -> tuple[bool, str]:
        """This opens a session."""
        if self._open:
            return False, "a weight-update session is already open; call end_weight_update() first"
        self._open = True
        self.received = {}
        return SUCCESS

    def update_weights_from_tensor(
        self, named_tensors: list[tuple[str, Tensor]], load_format: str | None = None, flush_cache: bool = True
    ) -> tuple[bool, str]:
        """This hands tensors to the model's own loader; a copy of each is kept for the fingerprint."""
        if not self._open:
            return False, "update_weights_from_tensor must run between begin_weight_update() and end_weight_update()"
        self.received |= {name: tensor.clone() for name, tensor in named_tensors}
        with torch.no_grad():
            self.model.load_weights(iter(named_tensors))
        return SUCCESS

    def end_weight_update(self) -> tuple[bool, str]:
        """This closes the session."""
        if not self._open:
            return False, "no weight-update session is open; call begin_weight_update() first"
        self._open = False
        return SUCCESS
