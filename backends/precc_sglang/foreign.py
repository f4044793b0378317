"""What SGLang makes of the files that a server starts with, for a model whose contract is not at hand.

The files are those of `precc compile`, all or some of them: a `quantization_config` that stands in a checkpoint has no
arguments and no environment beside it. What the missing ones would have said is taken as SGLang has it without them,
and told.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from precc.backend import Foreign, Unsupported, named_contract
from precc.contract import Contract, RolloutLayout
from precc.diagnostics import error
from precc.formats import Decision, FourOverSix
from precc.graph.model import ModelGraph, Tensor
from precc.records import replace
from precc.syntax.words import Role
from precc_sglang import environment as env
from precc_sglang.config import DIGEST_KEY
from precc_sglang.families import BY_NAME, FP8_BLOCK, UNQUANTIZED, Family, is_w4a4, operands_of
from precc_sglang.methods import MIXED
from precc_sglang.paths import CONFIG_PATH, ENVIRONMENT_PATH, LEGACY_PATH, SERVER_PATH, SHELL_PATH
from precc_sglang.reading.configs import Fp8
from precc_sglang.reading.files import Files
from precc_sglang.reading.read import Server
from precc_sglang.refusal import unreadable
from precc_sglang.server import BLOCK_BACKENDS, UNFUSED

SEEMS, UNSPELLED = "P901", "P902"
"""The codes of a source that is not what it seems, and of one that no policy can say."""

FILES = (CONFIG_PATH, LEGACY_PATH, SERVER_PATH, ENVIRONMENT_PATH, SHELL_PATH)


def read_foreign(
    model: ModelGraph, arguments: Sequence[str], environment: Mapping[str, str], recipes: Mapping[str, str]
) -> Foreign:
    """This reads the files of a target (last component of the path → text) as a server would; any may be missing.

    Raises Unsupported with findings P901 for what SGLang would not start with, P902 for what is no decision.
    """
    texts = {path: recipes[name] for path in FILES if (name := path.rpartition("/")[2]) in recipes}
    try:
        _check_digests(texts)
        server = _ForeignServer(_files(texts, environment), Contract(model, "", (), rollout=RolloutLayout()))
        server.texts = texts
        decided = tuple((tensor, server.decision(tensor)) for tensor in model.tensors)
    except Unsupported as refusal:
        raise _as_source(refusal) from None
    return Foreign(decided, (), tuple(server.remarks(decided)))


def _as_source(refusal: Unsupported) -> Unsupported:
    """The same findings as about somebody else's files: nothing is compiled here."""
    kept = (SEEMS, UNSPELLED)
    return Unsupported(*(found if found.code in kept else error(SEEMS, found.message) for found in refusal.findings))


# --- the files ---------------------------------------------------------------------------------------


def _files(texts: Mapping[str, str], environment: Mapping[str, str]) -> Files:
    config, legacy = _object(texts, CONFIG_PATH), _object(texts, LEGACY_PATH)
    if CONFIG_PATH not in texts and legacy is not None:
        config, legacy = _modern(legacy), None
    return Files(config, legacy, _arguments(texts), {**environment, **_variables(texts)})


def _object(texts: Mapping[str, str], path: str) -> dict[str, Any] | None:
    said = json.loads(texts.get(path, "null"))
    if said is not None and not isinstance(said, dict):
        raise unreadable(f"{path} holds neither an object nor null")
    return said


def _modern(legacy: Mapping[str, Any]) -> dict[str, Any]:
    """The `quantization_config` beside which a legacy file was written."""
    section = dict(legacy.get("quantization") or {})
    section["ignore"] = section.pop("exclude_modules", [])
    method = MIXED.quant_method if section.get("quant_algo") == MIXED.quant_algo else "modelopt"
    return {"quant_method": method, **section, DIGEST_KEY: legacy.get(DIGEST_KEY)}


def _arguments(texts: Mapping[str, str]) -> dict[str, Any]:
    import yaml

    said = yaml.safe_load(texts.get(SERVER_PATH, "{}"))
    if not isinstance(said, dict):
        raise unreadable(f"{SERVER_PATH} is no mapping of argument names to values")
    return said


def _variables(texts: Mapping[str, str]) -> dict[str, str]:
    """What the environment sets, by its JSON or by its shell script."""
    if ENVIRONMENT_PATH in texts:
        said = (_object(texts, ENVIRONMENT_PATH) or {}).get("set")
        if not isinstance(said, dict):
            raise unreadable(f"{ENVIRONMENT_PATH} does not say what is `set`")
        return {str(name): str(value) for name, value in said.items()}
    try:
        settings = env.shell_settings(texts.get(SHELL_PATH, ""))
    except ValueError as problem:
        raise unreadable(f"{SHELL_PATH}: {problem}") from None
    return {name: value for name, value in settings.items() if value is not None}


def _check_digests(texts: Mapping[str, str]) -> None:
    """This refuses files of two contracts."""
    named = {path: digest for path in texts if (digest := _digest(texts, path))}
    if len({*named.values()}) > 1:
        said = ", ".join(f"{path.rpartition('/')[2]} {digest[:12]}…" for path, digest in named.items())
        raise unreadable(f"the files belong to two contracts: {said}")


def _digest(texts: Mapping[str, str], path: str) -> str:
    if path in (SERVER_PATH, SHELL_PATH):
        return named_contract(texts[path])
    said = _object(texts, path) or {}
    return str(said.get("digest" if path == ENVIRONMENT_PATH else DIGEST_KEY) or "")


# --- the decisions -----------------------------------------------------------------------------------


class _ForeignServer(Server):
    texts: Mapping[str, str]

    @property
    def _folds_shared(self) -> bool:
        """Whether shared experts become routed ones: where no arguments are here, they are as the lists have them."""
        return SERVER_PATH in self.texts and super()._folds_shared

    def decision(self, tensor: Tensor) -> Decision | None:
        """What a tensor is stored and multiplied as; None where it is not quantized."""
        found = self.reading(tensor)
        method = str(getattr(found.decision, "method", ""))
        if method == UNQUANTIZED.name:
            return None
        name, _, group = method.partition(" group ")
        family = BY_NAME.get(name)
        if family is None:
            message = f"{tensor.name} would be served as {method}, which has no spelling ({found.because})"
            raise Unsupported(error(UNSPELLED, message))
        return self._spelled(family, int(group) if group else None)

    def _spelled(self, family: Family, group: int | None) -> Decision:
        weight, operand, trains = operands_of(family, group)
        if family is FP8_BLOCK:
            weight, operand = (replace(side, scale=self.scale) for side in (weight, operand))
        elif is_w4a4(family):
            weight, operand = (replace(side, four_over_six=self.adaptive) for side in (weight, operand))
        return Decision(weight, operand, train=None if trains else "bf16")

    @property
    def scale(self) -> str:
        """The type of the scales of FP8 blocks: that of the backend which multiplies them, else what is declared."""
        backend = str(self.files.arguments.get("fp8-gemm-backend", ""))
        known = next((scale for scale, (dense, _) in BLOCK_BACKENDS.items() if dense == backend), None)
        return known or ("pow2" if isinstance(self.config, Fp8) and self.config.pow2 else "fp32")

    @property
    def adaptive(self) -> FourOverSix | None:
        """How NVFP4 blocks are scaled."""
        if not self.files.on(env.ADAPTIVE):
            return None
        is_mse = self.files.variables.get(env.ADAPTIVE_ERROR, "MAE").upper() == "MSE"
        return FourOverSix("mse" if is_mse else "mae", 256 if self.files.on(env.ADAPTIVE_MAX) else 448)

    # --- what the files leave open ------------------------------------------------------------------

    def remarks(self, decided: Sequence[tuple[Tensor, Decision | None]]) -> Iterator[str]:
        """One sentence for each part of the decisions that stands in no file that is here."""
        found = {decision for _, decision in decided if decision is not None}
        formats = {decision.weight.format for decision in found}
        has_environment = ENVIRONMENT_PATH in self.texts or SHELL_PATH in self.texts
        if any(decision.input is not None and decision.input.format == "nvfp4" for decision in found):
            if not has_environment:
                yield _NO_VARIABLES
            elif self.adaptive is not None:
                yield "the weights are taken to be scaled by four over six like the inputs: only these are the server's"
        if SERVER_PATH not in self.texts and super()._folds_shared and _are_apart(decided):
            yield _NO_ARGUMENTS
        if "fp8_block" in formats and SERVER_PATH not in self.texts and not isinstance(self.config, Fp8):
            yield "no server.yaml is here, which says what scales FP8 blocks have: they are taken as FP32"
        if found:
            yield _NO_TRAINER


_NO_VARIABLES = (
    f"how inputs in NVFP4 are scaled is a variable of the server ({env.PER_TOKEN}, {env.ADAPTIVE}), and no env.json is "
    "here: they are taken as SGLang has them without, by one static scale a tensor"
)
_NO_ARGUMENTS = (
    f"a server folds shared experts into the routed ones unless `{UNFUSED}` is among its arguments, and no server.yaml "
    "is here: they are taken as the lists have them"
)
_NO_TRAINER = (
    "a server's files do not say how it is trained: backward passes, and what trains in BF16, are the language's"
)


def _are_apart(decided: Sequence[tuple[Tensor, Decision | None]]) -> bool:
    """Whether shared experts of some layer are decided otherwise than the routed ones beside them."""
    layers: dict[tuple[object, ...], dict[Role, Decision | None]] = {}
    for tensor, decision in decided:
        if tensor.is_gemm and tensor.role in (Role.ROUTED_EXPERTS, Role.SHARED_EXPERTS):
            layers.setdefault((tensor.layer, tensor.mtp), {})[tensor.role] = decision
    return any(len(found) == 2 and len({*found.values()}) == 2 for found in layers.values())
