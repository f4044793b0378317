"""TransformerEngine's real recipe classes in a fresh process, under the emitted environment over a contrary one.

Run as a program it answers for the process that it is in: `Process`, pickled on standard output.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from precc_te import environment as names
from precc_te.running import BUILT_IN, Running, default
from precc_te.upstream import standin
from precc_te.upstream.wire import Process, words_of

CONTRARY: Mapping[str, tuple[str, str]] = {
    names.BACKWARD: ("dequantized", "high_precision"),
    names.NO_HADAMARD: ("1", "0"),
    names.NO_STOCHASTIC_ROUNDING: ("1", "0"),
    names.NO_WEIGHT_2D: ("1", "0"),
    names.ROW_SCALED: ("1", "0"),
    names.ADAPTIVE: ("activations", "weights"),
    names.ADAPTIVE_256: ("none", "all"),
    names.ADAPTIVE_ERROR: ("MSE", "MAE"),
    names.ADAPTIVE_FAST_MATH: ("1", "0"),
    names.FAST_MATH: ("1", "0"),
    names.BLOCK_FP32: ("1", "0"),
    names.TENSOR_POW2: ("1", "0"),
    "FP4_RECIPE": ("nvfp4", "mxfp8"),
    "NVTE_DPA_FP8_RECIPE": ("DelayedScaling", "Float8CurrentScaling"),
    "NVTE_DPA_FP8_FORMAT": ("HYBRID", "E4M3"),
}
"""Two values of each variable that matters: neither is what the recipes do without it, or the second is."""


def stale(wanted: Mapping[str, str]) -> dict[str, str]:
    """An environment of another run: every variable has a value that is not the wanted one."""
    found = {}
    for name in names.VARIABLES:
        values = CONTRARY.get(name, ("1", "0"))
        found[name] = next(value for value in values if value != wanted.get(name))
    return found


def fresh(script: Path, before: Mapping[str, str]) -> Process:
    """This sources a script in a shell with that environment, and starts a process in it."""
    program = [sys.executable, "-P", "-m", "precc_te.upstream.recipes"]
    command = ["bash", "-uc", 'source "$0" && exec "$@"', str(script), *program]
    done = subprocess.run(command, env=dict(before), capture_output=True, check=False)
    if done.returncode:
        return Process({}, {}, done.stderr.decode(errors="replace").strip().rpartition("\n")[2])
    found: Process = pickle.loads(done.stdout)
    return found


def defaults(recipes: Any, environment: Mapping[str, str]) -> dict[str, Running]:
    """What each class of the module of recipes is by default."""
    return {recipe: default(recipes, recipe, environment) for recipe in BUILT_IN}


def main() -> None:
    """Answer once."""
    environment = dict(os.environ)
    try:
        found = Process(environment, defaults(standin.load_recipes(), environment))
    except Exception as problem:
        found = Process(environment, {}, words_of(problem))
    sys.stdout.buffer.write(pickle.dumps(found))


if __name__ == "__main__":
    main()
