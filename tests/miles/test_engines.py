"""The rules here answer as the engines' own code does: SGLang's matchers, and Megatron's choice of a recipe.

Miles itself cannot be installed without a GPU's libraries; docs/miles.md says what of it was run, and how.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from miles.support import BLOCKS, DEQUANTIZED, MXFP8, NVFP4, compiled, emitted
from te.engines import Judges
from te.live import match

from precc.contract import Contract
from precc.graph.model import Tensor
from precc_miles.choosing import choose
from precc_miles.converter import listed
from precc_miles.emission import RECIPES
from precc_miles.forms import MXFP8 as MX
from precc_miles.forms import NVFP4 as NV
from precc_miles.names import is_latent, linear_of
from precc_miles.rollout import Server
from precc_sglang import grammar
from precc_sglang.names import Kind, Module, class_of, module_of

pytestmark = pytest.mark.slow

LISTS = [
    (NVFP4, "qwen3-30b-a3b"),
    (NVFP4, "deepseek-v3"),
    (NVFP4, "glm-4.5-air"),
    (DEQUANTIZED, "glm-5"),
    (MXFP8, "qwen3-30b-a3b"),
    (MXFP8, "deepseek-v3.2"),
    (MXFP8, "glm-4.5-air"),
    ("default: mxfp8\nlayers[:2], @mla?: bf16\n", "deepseek-v3"),
    (BLOCKS, "qwen3-30b-a3b"),
]


@pytest.mark.parametrize("policy, model", LISTS)
def test_a_server_reads_the_converters_list_as_the_sglang_target_does(policy: str, model: str) -> None:
    """Whose matchers are compared with SGLang's own functions, in both versions (`tests/rollout/test_matchers.py`)."""
    contract = compiled(policy, model)
    run = choose(contract)
    assert run.conversion is not None
    entries = listed(run.conversion, contract.model)
    server = Server(run.conversion.form, entries, contract.model)
    asked = 0
    for tensor in contract.tensors:
        answer = _sglang(contract, tensor, entries, run.conversion.form.method)
        assert server.quantizes(tensor) is answer, tensor.name
        asked += answer
    assert asked


def _sglang(contract: Contract, tensor: Tensor, entries: tuple[str, ...], method: str) -> bool:
    built = class_of(contract.model, method)
    assert built is not None
    module = module_of(tensor, built)
    if module is None or module.kind is Kind.NEVER:
        return False
    if module.draft and method == NV.method and built.drops_nvfp4_draft and module.kind is not Kind.HEAD:
        return False
    names = entries
    if method != NV.method:
        bare = [entry.removeprefix("model.") for entry in entries]
        names = tuple(name for entry in bare for name in (entry, f"model.{entry}"))
    if module.draft and built.draft_mapper:
        names = tuple(name.replace(*built.draft_mapper) for name in names)
    return not _is_skipped(module, names, built.packed, method)


def _is_skipped(module: Module, names: tuple[str, ...], packed: grammar.Packed, method: str) -> bool:
    if method in (MX.method, "fp8"):
        return module.kind is Kind.HEAD or grammar.skipped(module.prefix, names, packed) is not None
    if module.kind is not Kind.EXPERTS and grammar.skipped(module.prefix, names, packed) is not None:
        return True
    return grammar.excluded(module.prefix, names) is not None


@pytest.mark.parametrize("policy, model", [(NVFP4, "deepseek-v3"), (MXFP8, "glm-4.5-air"), (MXFP8, "deepseek-v3.2")])
def test_megatron_chooses_the_recipe_that_is_read(policy: str, model: str, judges: Judges, tmp_path: Path) -> None:
    """Its own code, in the version that the fork is made from, asked with the path of every linear layer."""
    contract = compiled(policy, model)
    training = choose(contract).training
    latent = is_latent(contract.model)
    linears = {linear: None for tensor in contract.tensors if (linear := linear_of(tensor, latent)) is not None}
    paths = {linear.path(linear.layer or 0): linear for linear in linears if linear.multiplied}
    (tmp_path / "recipes.yaml").write_text(emitted(contract)[RECIPES], encoding="utf-8")
    answers = judges("0.16.1").worker.ask(match, path=str(tmp_path / "recipes.yaml"), names=list(paths))
    assert isinstance(answers, list)
    assert len(answers) == len(paths) > 100
    for path, answer in zip(paths, answers, strict=True):
        recipe = next(m.recipe for m in training.matchers if m.pattern == "*" or _glob(path, m.pattern))
        name = "bf16" if recipe.form is None else recipe.form.name
        assert answer[0] == name, path


def _glob(path: str, pattern: str) -> bool:
    from fnmatch import fnmatchcase

    return fnmatchcase(path, pattern)
