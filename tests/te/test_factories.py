"""Factories build what TransformerEngine's own recipes build, by its own signatures; no kernel is run.

TransformerEngine's classes need its compiled library even to be imported. Each call is bound to the signature in the
installed source instead, and what was passed is looked at.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import sys
import types
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precc.formats import FourOverSix
from precc_te import factories
from precc_te.precision import TePrecision

CLASSES = {
    "HybridQuantizer": "hybrid_tensor",
    "IdentityQuantizer": "identity_tensor",
    "MXFP8Quantizer": "mxfp8_tensor",
    "NVFP4Quantizer": "nvfp4_tensor",
    "Float8BlockQuantizer": "float8_blockwise_tensor",
    "Float8CurrentScalingQuantizer": "float8_tensor",
}
PYTORCH = "transformer_engine.pytorch"


def installed() -> Path:
    """Where TransformerEngine's Python lies; it cannot be imported without its library."""
    found = importlib.util.find_spec("transformer_engine")
    assert found is not None
    assert found.submodule_search_locations is not None
    return Path(found.submodule_search_locations[0]) / "pytorch"


ROOT = installed()


def source(module: str) -> str:
    """The installed source of one of TransformerEngine's modules."""
    return (ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")


def signature(name: str, module: str) -> inspect.Signature:
    """The constructor's signature, from the syntax tree."""
    tree = ast.parse(source(module))
    (made,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    (init,) = (node for node in made.body if isinstance(node, ast.FunctionDef) and node.name == "__init__")
    arguments = init.args
    kinds = inspect.Parameter
    plain = [kinds(a.arg, kinds.POSITIONAL_OR_KEYWORD) for a in arguments.args[1:]]
    optional = len(arguments.defaults)
    plain = [p.replace(default=None) if len(plain) - n <= optional else p for n, p in enumerate(plain)]
    named = [
        kinds(a.arg, kinds.KEYWORD_ONLY, default=kinds.empty if default is None else None)
        for a, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    return inspect.Signature([*plain, *named])


@dataclass(frozen=True)
class Built:
    """One constructor call that the real signature accepts."""

    name: str
    given: dict[str, Any]


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules of TransformerEngine's names whose classes record calls that its signatures accept."""
    for package in ("transformer_engine", PYTORCH, f"{PYTORCH}.tensor"):
        monkeypatch.setitem(sys.modules, package, types.ModuleType(package))
    members = {
        node.targets[0].id
        for node in ast.walk(ast.parse(source("constants")))
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    constants: Any = types.ModuleType(f"{PYTORCH}.constants")
    constants.DType = SimpleNamespace(**{name: name for name in members if name.startswith("kFloat")})
    monkeypatch.setitem(sys.modules, constants.__name__, constants)
    for name, module in CLASSES.items():
        held: Any = types.ModuleType(f"{PYTORCH}.tensor.{module}")
        accepted = signature(name, f"tensor.{module}")
        setattr(held, name, lambda *a, _n=name, _s=accepted, **k: Built(_n, dict(_s.bind(*a, **k).arguments)))
        monkeypatch.setitem(sys.modules, held.__name__, held)


def role(tensor: str, module: str = "linear") -> Any:
    """What TransformerEngine says of a slot."""
    return SimpleNamespace(module_type=module, tensor_type=tensor, name="")


def built(precision: TePrecision, tensor: str, module: str = "linear") -> Built:
    """What the factory of a precision builds for a slot."""
    factory = getattr(factories, factories.factory_name(precision))
    made: Built = factory(role(tensor, module))
    return made


modes = st.sampled_from(("native", "high_precision", "dequantized"))
adaptive = st.none() | st.builds(FourOverSix, st.sampled_from(("mae", "mse")), st.sampled_from((256, 448)))
nvfp4 = st.builds(
    TePrecision,
    st.just("nvfp4"),
    modes,
    row_scaled=st.booleans(),
    weight_2d=st.booleans(),
    hadamard=st.booleans(),
    stochastic_rounding=st.booleans(),
    weight_4over6=adaptive,
    input_4over6=adaptive,
)
eight_bits = st.builds(TePrecision, st.sampled_from(("blockwise", "tensorwise")), modes, pow2_scales=st.booleans())
precisions = nvfp4 | eight_bits | st.builds(TePrecision, st.just("mxfp8"), modes)


@given(precisions)
def test_a_name_is_a_precision(precision: TePrecision) -> None:
    """Names translate both ways, so that a file that names one can be read."""
    name = factories.factory_name(precision)
    assert name.isidentifier()
    assert factories.factory_precision(name) == precision


@pytest.mark.parametrize(
    "name", ["mxfp8", "mxfp8_bf16", "nvfp4_per_row_dequantized", "nvfp4_native_native", "_factory_"]
)
def test_a_name_of_no_precision_is_none(name: str) -> None:
    """Megatron then says that the module has no such attribute."""
    assert factories.factory_precision(name) is None
    with pytest.raises(AttributeError):
        getattr(factories, name)


def test_a_factory_is_one_object_and_knows_its_name() -> None:
    """TransformerEngine compares recipes by their factory."""
    found = factories.mxfp8_dequantized
    assert found is factories.mxfp8_dequantized
    assert f"{found.__module__}.{found.__name__}" == "precc_te.factories.mxfp8_dequantized"


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize(
    "precision, slot, module",
    list(
        product(
            [
                TePrecision("mxfp8", "high_precision"),
                TePrecision("mxfp8", "dequantized"),
                TePrecision("nvfp4", "high_precision", row_scaled=True),
                TePrecision("nvfp4", "dequantized", row_scaled=True),
                TePrecision("blockwise", "dequantized", pow2_scales=True),
                TePrecision("tensorwise", "high_precision"),
            ],
            ["input", "weight"],
            ["linear", "grouped_linear"],
        )
    ),
)
def test_a_backward_mode_is_the_source_of_the_columnwise_half(precision: TePrecision, slot: str, module: str) -> None:
    """The forward reads rows, the backward columns: from the original or from what the forward dequantizes to."""
    made = built(precision, slot, module)
    assert made.name == "HybridQuantizer"
    assert made.given["columnwise_quantizer"] == Built("IdentityQuantizer", {})
    source_of = {"high_precision": "original", "dequantized": "rowwise_dequantized"}
    assert made.given["columnwise_source"] == source_of[precision.backward or ""]
    native = TePrecision(precision.recipe, "native", row_scaled=precision.row_scaled, pow2_scales=precision.pow2_scales)
    assert made.given["rowwise_quantizer"] == built(native, slot, module)
    assert built(precision, "grad_output", module) == Built("IdentityQuantizer", {})


@pytest.mark.usefixtures("engine")
def test_rows_are_scaled_in_inputs_only() -> None:
    """A weight keeps one outer scale, and a gradient is never per token."""
    precision = TePrecision("nvfp4", "native", row_scaled=True)
    scaled = {slot: built(precision, slot).given["row_scaled_nvfp4"] for slot in ("input", "weight", "grad_output")}
    assert scaled == {"input": True, "weight": False, "grad_output": False}


@pytest.mark.usefixtures("engine")
def test_the_pretraining_recipe_is_transformer_engines_own() -> None:
    """2-D weights, Hadamard on inputs and gradients, stochastic rounding of gradients."""
    precision = TePrecision("nvfp4", "native", weight_2d=True, hadamard=True, stochastic_rounding=True)
    names = ("with_2d_quantization", "with_rht", "with_post_rht_amax", "stochastic_rounding")
    shown = {slot: [built(precision, slot).given[n] for n in names] for slot in ("input", "weight", "grad_output")}
    assert shown == {
        "input": [False, True, True, False],
        "weight": [True, False, False, False],
        "grad_output": [False, True, True, True],
    }


@pytest.mark.usefixtures("engine")
def test_four_over_six_is_an_operands_own() -> None:
    """Each side has its own error and maximum; gradients have none."""
    precision = TePrecision(
        "nvfp4", "native", weight_4over6=FourOverSix("mse", 448), input_4over6=FourOverSix("mae", 256)
    )
    names = ("nvfp4_use_4over6", "nvfp4_e4m3_max", "nvfp4_4over6_err_mode")
    shown = {slot: [built(precision, slot).given[n] for n in names] for slot in ("input", "weight", "grad_output")}
    assert shown == {
        "input": [True, 256, "MAE"],
        "weight": [True, 448, "MSE"],
        "grad_output": [False, 448, "MAE"],
    }


@pytest.mark.usefixtures("engine")
def test_block_scales_are_two_dimensional_in_weights_only() -> None:
    """128×128 blocks of weights against 1×128 of inputs and gradients, in the stated type of scale."""
    precision = TePrecision("blockwise", "native", pow2_scales=True)
    dims = {slot: built(precision, slot).given["block_scaling_dim"] for slot in ("input", "weight", "grad_output")}
    assert dims == {"input": 1, "weight": 2, "grad_output": 1}
    assert built(precision, "weight").given["force_pow_2_scales"] is True
    assert built(TePrecision("blockwise", "native"), "weight").given["force_pow_2_scales"] is False


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("boundary", [None, SimpleNamespace(module_type="", tensor_type="", name="")])
def test_a_boundary_gets_a_quantizer_too(boundary: Any) -> None:
    """Output and gradient of the input have no role; a factory that returns None raises there."""
    for mode in ("native", "high_precision", "dequantized"):
        for recipe in ("mxfp8", "nvfp4", "blockwise", "tensorwise"):
            made = getattr(factories, f"{recipe}_{mode}")(boundary)
            assert made.name in CLASSES
            assert made.name not in ("HybridQuantizer", "IdentityQuantizer")
