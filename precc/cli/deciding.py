"""From the arguments of a verb to a decided policy."""

from __future__ import annotations

from argparse import Namespace

from precc.cli.errors import Refused
from precc.cli.paths import policy_path, recorded, shown
from precc.cli.subjects import Targets, settings
from precc.diagnostics import Diagnostic
from precc.front import read_policy
from precc.graph.model import ModelGraph
from precc.pipeline import Compilation, decide_read
from precc.records import replace
from precc.resolve.bind import Binding
from precc.source import SourceFile
from precc.syntax import read_source


def read_policy_file(argument: str) -> SourceFile:
    """The text of a policy: a file, or a ready one by its name."""
    path = policy_path(argument)
    source = read_source(path)
    if isinstance(source, Diagnostic):
        raise Refused([source])
    return replace(source, path=shown(path), recorded=recorded(path))


def decide(argument: str, model: ModelGraph, options: Namespace) -> tuple[Binding, Compilation]:
    """What a policy decides on a model; nothing is emitted."""
    source = read_policy_file(argument)
    read = policy, _ = read_policy(source)
    done = decide_read(read, model, Targets(options).of(policy), settings(options))
    if done.binding is None:
        raise Refused(done.findings)
    return done.binding, done
