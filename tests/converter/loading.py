"""Who loads what `convert` wrote: SGLang's own front door and loader, and transformers.

`sglang` starts the worker of `precc verify --upstream` with one operation more, `load`. `read` is for a process of
its own without SGLang, which registers model classes in transformers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from precc_sglang.upstream.process import Worker, started
from precc_sglang.upstream.wire import Job, Loaded, Stop

TESTS = Path(__file__).parents[1]
POISONS = (0x5A, 0xA5)


@contextmanager
def sglang() -> Iterator[Worker]:
    """A live SGLang; its operation `load` is the one below."""
    with started([str(TESTS)], ("-c", "from converter.loading import serve; serve()")) as worker:
        yield worker


def serve() -> None:
    """Answer as the worker does."""
    from precc_sglang.upstream import worker

    worker.OPERATIONS["load"] = load
    worker.main()


def load(job: Job) -> list[Loaded] | Stop:
    """What SGLang's loader does with the checkpoint in `job.small`: for the model, and for its draft model if any."""
    from precc_sglang.upstream import frontdoor, sourcing
    from precc_sglang.upstream.releases import boot

    try:
        sourcing.source(job.small, job.variables)
        with boot().gpu(job.capability):
            resolved = frontdoor.server(job.small)
            drafts = (False, True) if job.draft else (False,)
            return [_over_poison(frontdoor.make(resolved, "cpu", draft=draft)) for draft in drafts]
    except (Exception, SystemExit) as problem:
        return Stop("loading", f"{type(problem).__name__}: {problem}")


def _over_poison(made: Any) -> Loaded:
    """A byte that is another after loading over another poison was never written; real weights hold any byte."""
    from precc_sglang.upstream import loading

    after, loaded = [], []
    for poison in POISONS:
        with patch.object(loading, "POISON", poison):
            loaded.append(loading.load(made, lambda name: False))
        after.append({name: octets(value).clone() for name, value in made.model.named_parameters()})
    one, other = after
    unwritten = tuple(name for name in one if not bool((one[name] == other[name]).all()))
    return Loaded(unwritten, loaded[0].read, loaded[0].casts)


def octets(tensor: Any) -> Any:
    """The bytes of a tensor."""
    import torch

    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def read(folder: Path, plain: Path) -> dict[str, list[str]] | str:
    """What transformers makes of a checkpoint, against what it makes of its plain numbers; or its own error.

    `missing` and `unexpected` are the keys of its loading report, `different` the parameters of other bytes.
    """
    import logging
    import warnings

    os.environ["HF_HUB_OFFLINE"] = "1"
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)
    try:
        (model, report), (wanted, _) = (
            AutoModelForCausalLM.from_pretrained(path, dtype="auto", output_loading_info=True)
            for path in (folder, plain)
        )
    except (ImportError, RuntimeError, ValueError) as problem:
        return f"{type(problem).__name__}: {' '.join(str(problem).split())}"
    found, meant = model.state_dict(), wanted.state_dict()
    same = [n for n in found.keys() & meant.keys() if found[n].dtype == meant[n].dtype]
    alike = {name for name in same if torch.equal(octets(found[name]), octets(meant[name]))}
    return {
        "missing": sorted(report["missing_keys"]),
        "unexpected": sorted(report["unexpected_keys"]),
        "different": sorted((found.keys() | meant.keys()) - alike),
    }
