"""SGLang's own reading of a server's command line, for the worker that has it (`rollout.engine`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def spellings(names: Sequence[str]) -> dict[str, tuple[list[str], list[str]]]:
    """For each long name: every spelling of its option, and the other options that are a beginning of its name."""
    options = _options()
    found = {}
    for name in names:
        own = options[f"--{name}"].option_strings
        begun = [option for option in options if option.startswith("--") and f"--{name}".startswith(option)]
        found[name] = (list(own), [option for option in begun if option not in own])
    return found


def parsed(words: Sequence[str], names: Sequence[str]) -> dict[str, object] | str:
    """The arguments of the real ServerArgs for a command line, or the name of the error that stops the server."""
    from sglang.srt.server_args import prepare_server_args

    try:
        arguments = prepare_server_args(list(words))
    except (Exception, SystemExit) as problem:
        return type(problem).__name__
    options = _options()
    return {name: getattr(arguments, options[f"--{name}"].dest) for name in names}


def _options() -> dict[str, Any]:
    from argparse import ArgumentParser

    from sglang.srt.server_args import ServerArgs

    parser = ArgumentParser()
    ServerArgs.add_cli_args(parser)
    return parser._option_string_actions
