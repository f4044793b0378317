"""What Megatron and TransformerEngine make of a launch that no contract wrote: a decision for each tensor.

The rules are those of `reading`. What a compiled folder may not do is done here as the engine does it: a layer that no
matcher names runs the engine-wide recipe, other arguments may stand on the line, a variable that is not set has
TransformerEngine's default. What has no decision (an E5M2 gradient, delayed scaling) says so instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from precc.backend import Foreign, ForeignRule, Reading, Unsupported
from precc.contract import TrainLayout
from precc.diagnostics import error
from precc.formats import Decision
from precc.graph.model import ModelGraph, Tensor
from precc_te.launch import DEFAULTS, values_of
from precc_te.launch_layout import layout_of
from precc_te.names import SEQUENTIAL, Module, Names
from precc_te.precision import Recipe, Refusal, TePrecision, Unaddressed
from precc_te.reading.arguments import Arguments
from precc_te.reading.engine import Trainer
from precc_te.reading.layout import Ranks
from precc_te.reading.recipes import RecipeFile, Rule, read_recipes
from precc_te.spelling import decision_of
from precc_te.versions import engine_of

SEEMS, UNSPELLED = "P901", "P902"
"""The codes of a source that is not what it seems, and of one that no policy can say."""

GATHERS = ("--fp8-param-gather", "--fp4-param-gather")
_GATHERED = "is not read: a policy's weights are gathered in BF16, and quantized where they are multiplied"

_NUMBERED = re.compile(r"layers\.(\d+)\.")

_RECIPES: dict[str, Recipe] = {"tensorwise": "tensorwise", "mxfp8": "mxfp8", "blockwise": "blockwise"}


def read_foreign(
    model: ModelGraph, arguments: Sequence[str], environment: Mapping[str, str], recipes: Mapping[str, str]
) -> Foreign:
    """This reads a trainer's launch: its arguments and environment, and the recipe file (path → text; one, or none).

    Raises Unsupported with findings P901 for what Megatron would not start with, P902 for what is no decision.
    """
    given = values_of(arguments)
    layout = layout_of(TrainLayout(), given)
    engine = engine_of(layout)
    ranks = Ranks(model.layers, layout.pp, layout.vpp, model.expert_count, layout.ep)
    said = _arguments(given)
    files = tuple(_recipe_file(path, text, layout) for path, text in recipes.items()) or (RecipeFile("", ()),)
    try:
        trainer = _ForeignTrainer(ranks, engine, said, environment, files)
        trainer.sequential = "--num-experts" in given and "--moe-grouped-gemm" not in given
        return trainer.foreign(model, tuple(f"{word} {_GATHERED}" for word in GATHERS if word in given))
    except Unsupported as refusal:
        raise _as_source(refusal, UNSPELLED) from None


def _arguments(given: Mapping[str, str]) -> Arguments:
    found = {name: given.get(name, default) for name, default in DEFAULTS.items()}
    if found["--transformer-impl"] != "transformer_engine" and (found["--fp8-format"] or found["--fp4-format"]):
        raise _refused(SEEMS, "Megatron's own layers have no FP8 or FP4", "`--transformer-impl transformer_engine`")
    if found["--fp8-format"] and found["--fp4-format"]:
        raise _refused(SEEMS, "Megatron takes `--fp8-format` or `--fp4-format`, not both", "one of the two")
    if "--fp16" in given:
        raise _refused(UNSPELLED, "it trains in FP16 (`--fp16`); a policy is for BF16 trainers", "`--bf16`")
    flagged = "--first-last-layers-bf16" in given
    start, end = (int(found[name]) if flagged and found[name].isdecimal() else 0 for name in list(DEFAULTS)[-2:])
    return Arguments(_mode(found), found["--fp8-format"] == "hybrid", start, end, None)


def _mode(found: Mapping[str, str]) -> Recipe:
    if found["--fp4-format"]:
        if found["--fp4-recipe"] != "nvfp4":
            raise _refused(UNSPELLED, f"`--fp4-recipe {found['--fp4-recipe']}` is no format of a policy", "`nvfp4`")
        return "nvfp4"
    if not found["--fp8-format"]:
        return "bf16"
    recipe = found["--fp8-recipe"]
    if recipe not in _RECIPES:
        said = f"`--fp8-recipe {recipe}`" + (" (what Megatron assumes)" if recipe == DEFAULTS["--fp8-recipe"] else "")
        raise _refused(UNSPELLED, f"{said} is no format of a policy", f"one of {', '.join(_RECIPES)}")
    return _RECIPES[recipe]


def _refused(code: str, problem: str, instead: str) -> Unsupported:
    return Unsupported(error(code, problem, help=f"write {instead} on the line"))


def _recipe_file(path: str, text: str, layout: TrainLayout) -> RecipeFile:
    try:
        return read_recipes(path, text, engine_of(layout))
    except Unsupported as refusal:
        raise _as_source(refusal, SEEMS) from None


def _as_source(refusal: Unsupported, code: str) -> Unsupported:
    """The same findings as about somebody else's file: nothing was compiled, nothing was edited."""
    kept = (found if found.code in (SEEMS, UNSPELLED) else error(code, found.message) for found in refusal.findings)
    return Unsupported(*kept)


@dataclass
class _Use:
    """One matcher: the tensors that it matches, those whose recipe it is, and the decoder layers that they stand in."""

    matched: int = 0
    won: int = 0
    layers: set[int] = field(default_factory=set)


class _ForeignTrainer(Trainer):
    sequential = False

    def unmatched(self, file: RecipeFile, path: str, surrounding: TePrecision) -> Reading:
        return Reading(surrounding, "the engine-wide recipe")

    def paths(self, module: Module, experts: range | None) -> Iterator[str]:
        """Those of the layout in force: all local experts as one layer, or each one's own."""
        for path in super().paths(module, experts):
            if not module.is_experts or (SEQUENTIAL in path) == self.sequential:
                yield path

    def foreign(self, model: ModelGraph, remarks: tuple[str, ...]) -> Foreign:
        """Every tensor with its decision, and every matcher with what it reached."""
        names = Names(model)
        rules = {(file.path, rule.label): _Use() for file in self._files for rule in file.rules}
        decided = []
        for tensor in model.tensors:
            module = names.module(tensor)
            if module is not None:
                self._count(module, tensor, rules)
            decided.append((tensor, self._decision(module, tensor)))
        return Foreign(tuple(decided), tuple(self._rules(rules)), remarks)

    def _decision(self, module: Module | None, tensor: Tensor) -> Decision | None:
        found = self.read(module, tensor.experts)
        if isinstance(found.decision, Unaddressed):
            return None
        if not isinstance(found.decision, TePrecision):
            message = f"{tensor.name} would not run one way: {found.decision}"
            raise Unsupported(error(UNSPELLED, message, help="decide all of its layers, experts and passes alike"))
        decision = decision_of(found.decision)
        if isinstance(decision, Refusal):
            message = f"{tensor.name} runs as {found.decision} ({found.because}): {decision.reason}"
            raise Unsupported(error(UNSPELLED, message, help=decision.help))
        return decision

    def _count(self, module: Module, tensor: Tensor, rules: Mapping[tuple[str, str], _Use]) -> None:
        file = self._file(module)
        paths = tuple(self.paths(module, tensor.experts))
        winners = {rule.label for rule in map(file.match, paths) if rule is not None and self._runs(module, rule)}
        for rule in file.rules:
            if any(fnmatchcase(path, rule.pattern) for path in paths):
                use = rules[file.path, rule.label]
                use.matched += tensor.count
                use.won += tensor.count * (rule.label in winners)
                use.layers |= {tensor.layer} if tensor.layer is not None else set()

    def _runs(self, module: Module, rule: Rule) -> bool:
        """Whether a layer runs the recipe of the rule that it matches, not what surrounds it."""
        recipe = rule.training
        return recipe.over_quantized if self._autocast(module).is_quantized else recipe.over_unquantized

    def _rules(self, rules: Mapping[tuple[str, str], _Use]) -> Iterator[ForeignRule]:
        for file in self._files:
            for rule in file.rules:
                use = rules[file.path, rule.label]
                where = f"{file.path}: matchers.{rule.label}"
                yield ForeignRule(rule.pattern, where, use.matched, use.won, self._beyond(rule.pattern, use.layers))

    def _beyond(self, pattern: str, layers: set[int]) -> str:
        """The decoder layers that a pattern with one layer's number reaches beside it: it counts within a stage."""
        number = _NUMBERED.search(pattern)
        if number is None or len(self._files) > 1:
            return ""
        others = sorted(layers - {int(number[1])})
        return (
            f"decoder layers {', '.join(map(str, others))}: a pattern counts within a pipeline stage" if others else ""
        )
