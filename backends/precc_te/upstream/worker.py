"""A process with Megatron-Core's installed code, over a TransformerEngine without kernels.

Run as a program: pickled questions on standard input, pickled answers on standard output. A question is a function
(by its path), an environment and keywords; a child process answers each, in that environment: TransformerEngine's
recipe classes are defined anew in it. The first answer, unasked, says what is installed.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import logging
import os
import pickle
import sys
import typing
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from precc_te.upstream import arguments, standin
from precc_te.upstream.wire import Engines, Stop, words_of


def engines() -> Engines:
    """This loads Megatron over the stand-in, and says what is there."""
    megatron, te = _version("megatron-core"), _version("transformer-engine")
    problem = parser = ""
    try:
        standin.install(te)
        _load()
        parser = arguments.load_parser()
    except Exception as found:
        problem = words_of(found)
    return Engines(megatron, te, problem, parser)


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _load() -> None:
    if not hasattr(typing, "override"):  # Megatron 0.19 is for Python 3.12
        typing.override = lambda method: method  # type: ignore[attr-defined]
    importlib.import_module("megatron.core.models.gpt.gpt_layer_specs")
    importlib.import_module("megatron.core.models.gpt")


def answer(function: Callable[..., Any], environment: Mapping[str, str], request: Mapping[str, Any]) -> Any:
    """This answers in a process of its own; a Stop where something raises."""
    try:
        os.environ.clear()
        os.environ.update(environment)
        standin.define_recipes_anew()
        return function(**request)
    except Exception as problem:
        return Stop("the start", words_of(problem))


def main() -> None:
    """Answer questions until the input ends. The engines' own prints go to standard error."""
    warnings.simplefilter("ignore")
    logging.disable()
    questions, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    _send(engines(), answers)
    while True:
        try:
            asked = pickle.load(questions)
        except EOFError:
            return
        child = os.fork()
        if not child:
            _send(answer(*asked), answers)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            words = f"its process ended with status {os.waitstatus_to_exitcode(status)}"
            _send(Stop("the start", words), answers)


def _send(value: Any, answers: Any) -> None:
    pickle.dump(value, answers)
    answers.flush()


if __name__ == "__main__":
    main()
