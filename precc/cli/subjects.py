"""What a verb works on: models, targets and layouts, read from the options once."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from precc.cli.errors import Refused, UsageError
from precc.diagnostics import error
from precc.source import SourceFile

if TYPE_CHECKING:
    from precc.backend import Backend
    from precc.graph.model import ModelGraph
    from precc.pipeline import Settings
    from precc.resolve.policy import Policy


def read_models(names: Sequence[str] | None) -> list[ModelGraph]:
    """The graphs of the models that are named."""
    if not names:
        return []
    from precc.graph.reading import ModelError, read_model

    try:
        return [read_model(name) for name in dict.fromkeys(names)]
    except ModelError as problem:
        raise UsageError(problem.message, problem.help[:1].lower() + problem.help[1:]) from None


def one_model(names: Sequence[str] | None) -> ModelGraph:
    """The graph of the one model that a verb is about."""
    if not names:
        raise UsageError("this needs a model", "name one with --model; `precc models` lists the known ones")
    if len(set(names)) > 1:
        raise UsageError("this is about one model", f"name one of {', '.join(names)} with --model")
    return read_models(names)[0]


def settings(options: Namespace, complete: bool = False) -> Settings:
    """What the options say over a policy's layouts."""
    from precc.pipeline import Settings

    return Settings(_layout("train", options.train), _layout("rollout", options.rollout), complete)


def _layout(side: str, words: str | None) -> dict[str, str]:
    """The words of `--train` or `--rollout`, read as the policy's own line would be."""
    if not words:
        return {}
    from precc.syntax import parse
    from precc.syntax.ast import Layout

    file, findings = parse(SourceFile(f"--{side}", f"{side}: {' '.join(words.split())}"))
    for finding in findings:
        raise UsageError(f"--{side}: {finding.message}", finding.help or "")
    layouts = [statement for statement in file.statements if isinstance(statement, Layout)]
    return {setting.key: setting.value for layout in layouts for setting in layout.settings}


class Targets:
    """The targets that the options ask for, and the backends behind them."""

    def __init__(self, options: Namespace) -> None:
        from precc.backend import available

        self._known = available()
        self._asked = options.targets
        self._defaults = options.target_defaults
        self._loaded: dict[str, Backend] = {}
        self._check(self._asked or (), "--target")
        self._check(self._defaults or (), "[tool.precc]")

    def of(self, policy: Policy) -> list[str]:
        """The targets to compile a policy for, by name."""
        self._check_any()
        self._check_policy(policy)
        own = policy.targets.names if policy.targets else tuple(self._known)
        if self._asked:
            for name in self._asked:
                if name not in own:
                    raise UsageError(f"the policy `{policy.name}` is for {', '.join(own)}, not for {name}")
            return sorted(set(self._asked))
        if not self._defaults or policy.targets:
            own = self._own(policy)
        chosen = sorted(set(own) & set(self._defaults or own))
        if not chosen:
            raise UsageError(
                f"the policy `{policy.name}` is for {', '.join(own)}, [tool.precc] asks for {', '.join(self._defaults)}"
            )
        return chosen

    def _own(self, policy: Policy) -> tuple[str, ...]:
        """What a policy is for: the targets that it names, or all but those that have to be asked for."""
        return policy.targets.names if policy.targets else tuple(backend.name for backend in self.standard())

    def _check_policy(self, policy: Policy) -> None:
        unknown = [name for name in (policy.targets.names if policy.targets else ()) if name not in self._known]
        if unknown and policy.targets is not None:
            known = ", ".join(sorted(self._known))
            message = f"no target `{unknown[0]}` is installed"
            raise Refused([error("P021", message, policy.targets.span, help=f"targets: {known}")])

    def are_all(self, policy: Policy) -> bool:
        """Whether these are all the targets that a policy is for."""
        return set(self.of(policy)) >= set(self._own(policy))

    def backends(self, policy: Policy) -> list[Backend]:
        """The backends to compile a policy with."""
        return [self.load(name) for name in self.of(policy)]

    def load(self, name: str) -> Backend:
        """One backend."""
        from precc.backend import load_backend

        if name not in self._loaded:
            self._check([name], "this")
            try:
                self._loaded[name] = load_backend(self._known[name])
            except (ImportError, AttributeError) as problem:
                raise UsageError(f"the target {name} cannot be loaded: {problem}") from problem
        return self._loaded[name]

    def standard(self) -> list[Backend]:
        """Every backend that is installed, but those that have to be asked for."""
        from precc.backend import is_on_request

        return [backend for backend in self.every() if not is_on_request(backend)]

    def every(self) -> list[Backend]:
        """Every backend that is installed."""
        return [self.load(name) for name in sorted(self._known)]

    def _check_any(self) -> None:
        """Entry points are those of an installed package: a checkout alone has none."""
        if not self._known:
            raise UsageError(
                "no target is installed", "install precc with its targets: `pip install -e .` in a checkout"
            )

    def _check(self, names: Iterable[str], who: str) -> None:
        for name in names:
            self._check_any()
            if name not in self._known:
                known = ", ".join(sorted(self._known))
                raise UsageError(f"{who} names the target `{name}`, which is not installed", f"targets: {known}")
