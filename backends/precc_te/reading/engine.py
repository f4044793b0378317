"""Which recipe is in force for a linear layer: Megatron's autocast and first match, TransformerEngine's defaults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from precc.backend import Reading, Unsupported, check_digest, malformed, named_contract, text_of
from precc.contract import Contract
from precc.records import record
from precc_te import factories
from precc_te.emission import ARGUMENTS, ENV_SHELL
from precc_te.environment import BACKWARD, builtin
from precc_te.names import Module, Names, paths
from precc_te.precision import BF16, UNADDRESSED, TePrecision
from precc_te.precision import Recipe as Mode
from precc_te.reading.arguments import Arguments, read_arguments
from precc_te.reading.environment import read_environment
from precc_te.reading.layout import Ranks, ranks_of
from precc_te.reading.numbers import representatives
from precc_te.reading.recipes import Recipe, RecipeFile, read_recipes
from precc_te.rules.p504_inherited_recipe import inherits
from precc_te.stages import SCRIPT, recipe_path, script_stages
from precc_te.versions import FACTORIES, Engine, engine_of


@record
class Divided:
    """A tensor that would not run one way: two of its paths (or two experts, or evaluation) with their precisions."""

    one: str
    other: str

    def __str__(self) -> str:
        return f"both {self.one} and {self.other}"


def read_back(contract: Contract, artifacts: Mapping[str, str]) -> tuple[Reading, ...]:
    """This reads `te/` by the engine's own rules: one answer an entry of the contract."""
    ranks, engine = ranks_of(contract), engine_of(contract.train)
    arguments = read_arguments(text_of(artifacts, ARGUMENTS), ranks.layers, ranks.pipeline)
    environment = read_environment(artifacts, arguments.mode, contract.digest)
    files = _recipe_files(artifacts, arguments, ranks, engine, contract.digest)
    reader = Trainer(ranks, engine, arguments, environment, files)
    names = Names(contract.model)
    return tuple(reader.read(names.module(tensor), tensor.experts) for tensor in contract.tensors)


class Trainer:
    """A training process: its layout, versions, arguments and environment, and the recipe file of each stage."""

    def __init__(
        self,
        ranks: Ranks,
        engine: Engine,
        arguments: Arguments,
        environment: Mapping[str, str],
        files: tuple[RecipeFile, ...],
    ) -> None:
        self._ranks = ranks
        self._inner = engine.megatron.mtp_inner
        self._arguments = arguments
        self._recipes = Recipes(engine, arguments, environment)
        self._files = files
        self._known: dict[tuple[Module, range | None], Reading] = {}

    def read(self, module: Module | None, experts: range | None) -> Reading:
        """What is in force for a linear layer, for these of its experts."""
        if module is None:
            return Reading(UNADDRESSED, "Megatron multiplies it outside TransformerEngine, if at all")
        key = (module, experts)
        if key not in self._known:
            self._known[key] = self._unanimous(list(self._answers(module, experts)))
        return self._known[key]

    @staticmethod
    def _unanimous(answers: list[Reading]) -> Reading:
        first = answers[0]
        other = next((answer for answer in answers if answer.decision != first.decision), None)
        if other is None:
            return first
        divided = Divided(f"{first.decision} ({first.because})", f"{other.decision} ({other.because})")
        return Reading(divided, f"{first.because}; {other.because}")

    def _answers(self, module: Module, experts: range | None) -> Iterator[Reading]:
        """One answer for each path that the layer may have on some rank and that patterns can tell apart."""
        file = self._file(module)
        surrounding = self._autocast(module)
        for path in self.paths(module, experts):
            yield from self._in_force(file, path, surrounding)

    def paths(self, module: Module, experts: range | None) -> Iterator[str]:
        """The paths that the layer may have on some rank, those alone that the patterns can tell apart."""
        locals_ = self._ranks.local_layers(module.layer) if module.layer is not None else range(1)
        patterns = self._file(module).patterns
        yield from _numbered_paths(module, locals_, self._inner, patterns, self._experts(experts))

    def _experts(self, experts: range | None) -> tuple[range, ...]:
        return () if experts is None else self._ranks.local_experts(experts)

    def _file(self, module: Module) -> RecipeFile:
        if len(self._files) == 1:
            return self._files[0]
        return self._files[-1 if module.layer is None else self._ranks.stage(module.layer)]

    def _autocast(self, module: Module) -> TePrecision:
        """What surrounds a layer: FP8 always surrounds an MTP layer, FP4 never."""
        if module.layer is None:
            return BF16 if self._arguments.mode == "nvfp4" else self._recipes.surrounding
        kept = self._arguments.keeps_bf16(module.layer, self._ranks.layers)
        return BF16 if kept else self._recipes.surrounding

    def _in_force(self, file: RecipeFile, path: str, surrounding: TePrecision) -> Iterator[Reading]:
        rule = file.match(path)
        if rule is None:
            yield self.unmatched(file, path, surrounding)
            return
        because = f"{file.path}, matcher `{rule.label}` ({rule.pattern})"
        if surrounding == BF16 and self._arguments.mode != "bf16":
            because += f", in BF16 by {ARGUMENTS}"
        for recipe in dict.fromkeys((rule.training, rule.evaluation)):
            overrides = recipe.over_quantized if surrounding.is_quantized else recipe.over_unquantized
            yield Reading(self._recipes.precision(recipe, file.path) if overrides else surrounding, because)

    def unmatched(self, file: RecipeFile, path: str, surrounding: TePrecision) -> Reading:
        """What a layer runs that no matcher names: no contract leaves it to the engine. Raises Unsupported (P504)."""
        raise Unsupported(inherits(file.path, path, surrounding))


def _numbered_paths(
    module: Module, layers: range, inner: str, patterns: tuple[str, ...], experts: tuple[range, ...]
) -> Iterator[str]:
    if len(layers) > 1:
        layers = representatives(patterns, "decoder.layers.", layers)
    for head, tail in paths(module, layers, inner):
        if not tail:
            yield head
            continue
        for numbers in experts:
            yield from (f"{head}{number}{tail}" for number in representatives(patterns, head, numbers))


def _recipe_files(
    artifacts: Mapping[str, str], arguments: Arguments, ranks: Ranks, engine: Engine, digest: str
) -> tuple[RecipeFile, ...]:
    """The YAML that every rank reads, or one for each pipeline stage where the wrapper picks it."""
    if arguments.recipe_file is not None:
        path = f"te/{arguments.recipe_file}"
        if SCRIPT in artifacts:
            raise malformed(SCRIPT, f"{ARGUMENTS} names one recipe for all stages as well")
        return (_recipe_file(artifacts, path, engine, digest),)
    found = script_stages(text_of(artifacts, SCRIPT))
    if found is None or found[0] != ranks.pipeline:
        raise malformed(SCRIPT, f"this does not pick the recipes of {ranks.pipeline} pipeline stages")
    check_digest(SCRIPT, found[1], digest)
    if ranks.layers % ranks.pipeline or ranks.virtual > 1:
        raise malformed(SCRIPT, "recipes for each stage want layers that divide evenly and no virtual stages")
    stages = map(recipe_path, range(ranks.pipeline))
    return tuple(_recipe_file(artifacts, path, engine, digest) for path in stages)


def _recipe_file(artifacts: Mapping[str, str], path: str, engine: Engine, digest: str) -> RecipeFile:
    text = text_of(artifacts, path)
    check_digest(path, named_contract(text), digest)
    return read_recipes(path, text, engine)


class Recipes:
    """What each recipe is in a process with one environment."""

    def __init__(self, engine: Engine, arguments: Arguments, environment: Mapping[str, str]) -> None:
        self._engine = engine
        self._environment = environment
        self.surrounding = self._builtin(arguments.mode, arguments.hybrid)

    def precision(self, recipe: Recipe, path: str) -> TePrecision:
        """The precision of one recipe of the YAML at `path`."""
        if recipe.kind == "custom":
            return self._custom(recipe.factory, path)
        return self._builtin(recipe.kind, recipe.hybrid)  # type: ignore[arg-type]

    def _builtin(self, kind: Mode, hybrid: bool) -> TePrecision:
        try:
            found = builtin(kind, self._environment, self._engine)
        except ValueError as problem:
            raise malformed(ENV_SHELL, str(problem)) from None
        return replace(found, gradient="e5m2") if hybrid else found

    def _custom(self, factory: str, path: str) -> TePrecision:
        module, _, name = factory.rpartition(".")
        found = factories.factory_precision(name) if module == factories.MODULE else None
        if found is None:
            raise malformed(path, f"there is no recipe factory {factory}")
        if not self._engine.has(FACTORIES):
            raise malformed(path, f"TransformerEngine {self._engine.te} has no {FACTORIES}")
        override = self._environment.get(BACKWARD)
        if override is not None:
            found = replace(found, backward=override)  # type: ignore[arg-type]
        fast = builtin("nvfp4", self._environment, self._engine).fast_math if found.recipe == "nvfp4" else False
        return replace(found, fast_math=fast)
