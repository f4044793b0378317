"""The options that verbs share, and how a mistake in them is told."""

from __future__ import annotations

import argparse
import os
from typing import NoReturn

from precc.cli.errors import UsageError


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Help as wide as the terminal. The base class would import `shutil` to ask, even where no help is shown."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_width())


def _width() -> int:
    try:
        return max(40, min(os.get_terminal_size().columns, 110) - 2)
    except OSError:
        return 108


class ArgumentParser(argparse.ArgumentParser):
    """The parser of one verb: errors are raised as one line, examples stand below the options."""

    def __init__(self, verb: str, description: str, examples: str = "") -> None:
        super().__init__(
            prog=f"precc {verb}",
            description=description,
            epilog=f"examples:\n{examples}" if examples else None,
            formatter_class=_HelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        """A mistake on the command line."""
        raise UsageError(message, f"`{self.prog} --help` shows what it takes")

    def add_policies(self) -> None:
        """Any number of policy files and folders."""
        self.add_argument(
            "files",
            nargs="*",
            metavar="FILE",
            help="policy files, folders of them, or names of ready policies (default: this folder)",
        )

    def add_policy(self, name: str = "file", metavar: str = "FILE") -> None:
        """One policy."""
        self.add_argument(name, metavar=metavar, help="a policy file, or the name of a ready policy")

    def add_models(self, several: bool = True) -> None:
        """The models to check or compile for."""
        self.add_argument(
            "--model",
            "-m",
            dest="models",
            action="append",
            metavar="MODEL",
            help="a model's name, a config.json or a checkpoint folder" + ("; may be repeated" if several else ""),
        )

    def add_targets(self) -> None:
        """The backends."""
        self.add_argument(
            "--target",
            "-t",
            dest="targets",
            action="append",
            metavar="TARGET",
            help="one of the policy's targets (default: all of them); may be repeated",
        )

    def add_layouts(self) -> None:
        """What the two sides run in."""
        for side, example in (("train", "tp=4 pp=2 ep=8"), ("rollout", "tp=8 sglang=0.5.23")):
            self.add_argument(
                f"--{side}", metavar="SETTINGS", help=f'over the policy\'s `{side}:` line, as "{example}"'
            )

    def add_output_format(self, *formats: str) -> None:
        """How the result is written."""
        self.add_argument(
            "--output-format",
            choices=formats or ("text", "json"),
            metavar="FORMAT",
            help=f"{', '.join(formats or ('text', 'json'))} (default: text)",
        )
