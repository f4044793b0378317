"""Megatron-Core's own answers, from its installed code, over a stand-in for TransformerEngine without kernels.

Run as a program: one JSON request a line on standard input, one JSON answer a line on standard output. A child
process answers each, in the request's environment: TransformerEngine's recipe classes are defined anew in it.

`match`: the config that Megatron's matchers choose for each name, and its parsed training recipe.
`model`: a small real GPTModel with TransformerEngine layer specs, or one pipeline stage of it (by RANK and
WORLD_SIZE); for each of its linear layers, by path with the global number of its decoder layer, the recipe that is in
force when Megatron's own forward of the decoder and the MTP block reaches it.

The stand-in has layers that only note which autocast surrounds them. The recipe classes are TransformerEngine's own.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
import traceback
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

warnings.simplefilter("ignore")
ROOT = "transformer_engine"


class Fabricated(types.ModuleType):
    """A module that has any class, and below it any module, that one asks for."""

    __version__ = "2.20.2"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__ = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name.islower():
            return importlib.import_module(f"{self.__name__}.{name}")
        import torch

        made = type(name, (torch.nn.Module,), {})
        setattr(self, name, made)
        return made


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Every module below `transformer_engine` is fabricated."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.split(".")[0] == ROOT:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> types.ModuleType:
        return Fabricated(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


STACK: list[tuple[bool, Any]] = [(False, None)]


class State:
    """What TransformerEngine knows of the autocast in force."""

    @classmethod
    def is_fp8_enabled(cls) -> bool:
        return STACK[-1][0]

    @classmethod
    def get_fp8_recipe(cls) -> Any:
        return STACK[-1][1]


@contextlib.contextmanager
def autocast(enabled: bool = True, fp8_recipe: Any = None, recipe: Any = None, **_: Any) -> Iterator[None]:
    """TransformerEngine's context, as far as Megatron's decisions see it."""
    STACK.append((enabled, fp8_recipe or recipe))
    try:
        yield
    finally:
        STACK.pop()


def install() -> None:
    """This puts the stand-in in place of TransformerEngine, with its real recipe classes."""
    found = importlib.util.find_spec(ROOT)
    assert found is not None
    assert found.submodule_search_locations is not None
    source = Path(found.submodule_search_locations[0]) / "common" / "recipe" / "__init__.py"
    sys.meta_path.insert(0, Finder())
    spec = importlib.util.spec_from_file_location(f"{ROOT}.common.recipe", source)
    assert spec is not None
    assert spec.loader is not None
    recipes = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = recipes
    spec.loader.exec_module(recipes)
    engine = importlib.import_module(ROOT)
    common = importlib.import_module(f"{ROOT}.common")
    pytorch = importlib.import_module(f"{ROOT}.pytorch")
    fp8 = importlib.import_module(f"{ROOT}.pytorch.fp8")
    engine.common, engine.pytorch, common.recipe, pytorch.fp8 = common, pytorch, recipes, fp8  # type: ignore[attr-defined]
    for module in (fp8, pytorch):
        module.FP8GlobalStateManager, module.fp8_autocast, module.autocast = State, autocast, autocast  # type: ignore[attr-defined]
        module.fp8_model_init = lambda **_: contextlib.nullcontext()  # type: ignore[attr-defined]
    offload = importlib.import_module(f"{ROOT}.pytorch.cpu_offload")
    offload.get_cpu_offload_context = lambda *_, **__: (contextlib.nullcontext(), None)  # type: ignore[attr-defined]
    layers(pytorch)


def layers(pytorch: Any) -> None:
    """The linear layers, which note the autocast that surrounds them, and norms."""
    import torch

    class Linear(torch.nn.Module):
        def __init__(self, in_features: int, out_features: int, *_: Any, parallel_mode: Any = None, **__: Any) -> None:
            super().__init__()
            self.in_features, self.out_features, self.parallel_mode = in_features, out_features, parallel_mode
            self.weight = torch.nn.Parameter(torch.zeros(out_features, in_features))
            self.use_bias = self.save_original_input = self.sequence_parallel = False

        def forward(self, *_: Any, **__: Any) -> Any:
            self.seen = STACK[-1]
            return torch.zeros(1)

    class Grouped(Linear):
        def __init__(self, num_gemms: int, *rest: Any, **named: Any) -> None:
            super().__init__(*rest, **named)
            self.num_gemms = num_gemms
            for number in range(num_gemms):
                setattr(self, f"weight{number}", torch.nn.Parameter(torch.zeros(1)))

        def init_fp8_metadata(self, **_: Any) -> None:
            """Nothing to prepare."""

    class Norm(torch.nn.Module):
        def __init__(self, hidden_size: int = 1, *_: Any, **__: Any) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(hidden_size))

        def forward(self, tensor: Any) -> Any:
            return tensor

    pytorch.Linear = Linear
    pytorch.LayerNormLinear = type("LayerNormLinear", (Linear,), {})
    pytorch.GroupedLinear = Grouped
    pytorch.LayerNorm = type("LayerNorm", (Norm,), {})
    pytorch.RMSNorm = type("RMSNorm", (Norm,), {})
    pytorch.DotProductAttention = type("DotProductAttention", (Silent,), {})
    pytorch.Fp8Padding = pytorch.Fp8Unpadding = type("Padding", (Silent,), {})


class Silent:
    """A layer that takes any arguments; made a module when torch is there."""

    def __new__(cls, *_: Any, **__: Any) -> Any:
        import torch

        return torch.nn.Identity()


def match(request: dict[str, Any]) -> list[Any]:
    """The config and the parsed training recipe of each name; an error's type where Megatron raises."""
    from dataclasses import asdict

    from megatron.core.extensions.transformer_engine import TEQuantizationParams
    from megatron.core.quantization.utils import get_quant_config_or_none, load_quantization_recipe

    try:
        recipe = load_quantization_recipe(request["path"])
    except Exception as problem:
        return [type(problem).__name__] * len(request["names"])
    found: list[Any] = []
    for name in request["names"]:
        try:
            chosen = get_quant_config_or_none(name, recipe)
            if chosen is None:
                found.append(None)
                continue
            parsed = TEQuantizationParams.parse_from_config(chosen)
            found.append([chosen.config_key, asdict(parsed.training_recipe)])
        except Exception as problem:
            found.append(type(problem).__name__)
    return found


def model(request: dict[str, Any]) -> dict[str, Any]:
    """The recipe in force for each linear layer of a small GPTModel, or of this rank's stage of it."""
    import torch
    from megatron.core import parallel_state
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt import gpt_layer_specs as specs
    from megatron.core.quantization.utils import load_quantization_recipe
    from megatron.core.transformer import MLATransformerConfig, TransformerConfig

    options = dict(request["config"])
    latent = options.pop("multi_latent_attention", False)
    config = (MLATransformerConfig if latent else TransformerConfig)(
        hidden_size=64,
        num_attention_heads=4,
        use_cpu_initialization=True,
        gated_linear_unit=True,
        add_bias_linear=False,
        normalization="RMSNorm",
        persist_layer_norm=False,
        bias_dropout_fusion=False,
        gradient_accumulation_fusion=False,
        moe_token_dispatcher_type="alltoall",
        quant_recipe=load_quantization_recipe(request["path"]),
        pipeline_model_parallel_size=parallel_state.get_pipeline_model_parallel_world_size(),
        pipeline_dtype=torch.bfloat16,
        **({"multi_latent_attention": True} if latent else {}),
        **options,
    )
    spec = specs.get_gpt_decoder_block_spec(config, use_transformer_engine=True)
    ahead = specs.get_gpt_mtp_block_spec(config, spec, use_transformer_engine=True) if config.mtp_num_layers else None
    made = GPTModel(
        config=config,
        transformer_layer_spec=spec,
        vocab_size=128,
        max_sequence_length=64,
        position_embedding_type="rope",
        mtp_block_spec=ahead,
        pre_process=parallel_state.is_pipeline_first_stage(),
        post_process=parallel_state.is_pipeline_last_stage(),
    )
    names = {module: name for name, module in made.named_modules()}
    made.train()
    hidden = torch.zeros(2, 1, 64)
    for layer in made.decoder.layers:
        layer.forward = visit(layer, (hidden, None))
    made.decoder.set_input_tensor(hidden)
    made.decoder(hidden_states=hidden, attention_mask=None)
    for layer in made.mtp.layers if ahead is not None else ():
        inner = layer.transformer_layer
        inner.forward = visit(inner, (hidden, None))
        layer._concat_embeddings = visit(layer.eh_proj, hidden)
        layer._proj_and_transformer_layer(hidden, hidden)
    first = made.decoder.layers[0].layer_number - 1
    linears = [module for module in made.modules() if hasattr(module, "te_quant_params")]
    return {numbered(names[module], first): shown(*module.seen) for module in linears}


def numbered(name: str, first: int) -> str:
    """A module's path with the global number of its decoder layer, where it has a local one."""
    words = name.split(".")
    if words[0] == "decoder":
        words[2] = str(int(words[2]) + first)
    return ".".join(words)


def visit(root: Any, answer: Any) -> Callable[..., Any]:
    """A forward that only reaches every linear layer below a module."""

    def forward(*_: Any, **__: Any) -> Any:
        import torch

        for module in root.modules():
            if hasattr(module, "te_quant_params"):
                module(torch.zeros(2, 1, 64), *([[2]] if hasattr(module, "num_gemms") else []))
        return answer

    return forward


def shown(enabled: bool, recipe: Any) -> dict[str, Any]:
    """A recipe's class and its plain fields; nothing where no autocast is in force."""
    if not enabled:
        return {}
    fields = {name: value for name, value in vars(recipe).items() if isinstance(value, str | bool | None)}
    factory = getattr(recipe, "qfactory", None)
    return {
        "class": type(recipe).__name__,
        "format": recipe.fp8_format.name,
        **fields,
        **({"qfactory": f"{factory.__module__}.{factory.__name__}"} if factory else {}),
    }


def prepare() -> None:
    """One rank of a job of pipeline stages, without the others, and what Megatron asks of CUDA for a model."""
    import torch

    torch.cuda.current_device = lambda: "cpu"  # type: ignore[assignment, return-value]
    torch.cuda.Stream = torch.cuda.Event = Silent  # type: ignore[misc]
    from torch.testing._internal.distributed.fake_pg import FakeStore

    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    torch.distributed.init_process_group("fake", rank=rank, world_size=size, store=FakeStore())
    from megatron.core import parallel_state

    parallel_state.initialize_model_parallel(1, size, create_gloo_process_groups=False)


def answer(request: dict[str, Any]) -> Any:
    """This answers in a process of its own."""
    os.environ.clear()
    os.environ.update(request["environment"])
    recipes = sys.modules[f"{ROOT}.common.recipe"]
    assert recipes.__spec__ is not None
    assert recipes.__spec__.loader is not None
    recipes.__spec__.loader.exec_module(recipes)
    prepare()
    operations: dict[str, Callable[[dict[str, Any]], Any]] = {"match": match, "model": model}
    return operations[request["operation"]](request)


def main() -> None:
    """Answer requests until the input ends. Megatron's own prints go to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    install()
    importlib.import_module("megatron.core.models.gpt.gpt_layer_specs")
    for line in sys.stdin:
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            continue
        try:
            found = answer(json.loads(line))
        except BaseException:
            found = {"error": traceback.format_exc()}
        print(json.dumps(found), file=answers, flush=True)
        os._exit(0)


if __name__ == "__main__":
    main()
