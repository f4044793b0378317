"""A process that is a server's rank, for `precc_sglang.attest`: it loads models of SGLang and attests them.

Run as a program with a folder: `CASE/config.json`, `CASE/server.yaml` and `CASE/contract.json` in it. For each case
an environment, a model and the contract; what comes out is one line of JSON: case → the record, or the differences.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

VARIABLES = "variables.json"


def answer(folder: Path, change: Callable[[Any], Any]) -> dict[str, Any]:
    """This starts a case's server and attests its model, after a change to it."""
    from precc.backend import NotAttested
    from precc.contract import load_contract
    from precc_sglang import attest
    from precc_sglang.upstream import frontdoor

    os.environ.update(json.loads((folder / VARIABLES).read_text()))
    contract = load_contract(folder)
    resolved = frontdoor.server(str(folder))
    subject = change(resolved)
    try:
        return attest(subject, contract).to_json()
    except NotAttested as found:
        return {**found.attestation.to_json(), "raised": str(found)}


def model(resolved: Any) -> Any:
    """The model as the server has it."""
    from precc_sglang.upstream import frontdoor

    return frontdoor.make(resolved, "cpu").model


def draft(resolved: Any) -> Any:
    """The draft model beside it."""
    from precc_sglang.upstream import frontdoor

    return frontdoor.make(resolved, "cpu", draft=True).model


def another_method(resolved: Any) -> Any:
    """One layer's projection is replaced by an unquantized one, as a plug-in might."""
    from sglang.srt.layers.linear import RowParallelLinear

    made = model(resolved)
    attention = made.model.layers[1].self_attn
    attention.o_proj = RowParallelLinear(attention.o_proj.input_size, attention.o_proj.output_size, bias=False)
    return made


def settings(resolved: Any) -> Any:
    """The model's configuration, before anything is built."""
    from sglang.srt.configs.model_config import ModelConfig

    return ModelConfig.from_server_args(resolved)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "right": model,
    "draft": lambda resolved: (
        __import__("precc_sglang.upstream.frontdoor", fromlist=["make"]).make(resolved, "cpu", draft=True).model
    ),
    "configuration": settings,
    "arguments": lambda resolved: resolved,
    "method": another_method,
    "cache": model,
    "variable": model,
    "stale": model,
    "another": model,
    "argument": lambda resolved: resolved,
}
"""What is attested in each case."""


def main() -> None:
    """Each case in a fork: the environment and the arguments in force are its own."""
    from precc_sglang.upstream.releases import boot
    from precc_sglang.upstream.worker import loaded

    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    problem = loaded()
    assert problem is None, problem
    for name, change in CHANGES.items():
        if not (Path(sys.argv[1]) / name).exists():
            continue
        if os.fork() == 0:
            with boot().gpu(100):
                answers.write(json.dumps({name: answer(Path(sys.argv[1]) / name, change)}) + "\n")
            answers.flush()
            os._exit(0)
        os.wait()


if __name__ == "__main__":
    main()
