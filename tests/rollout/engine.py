"""The real SGLang, on a CPU, in a process of its own, for functions of it that are asked by themselves.

Everything that a test asks for is a function of this module (or of another), sent to the one worker; what comes back
are plain values. Whole compiles are judged by `precc_sglang.upstream`, whose stand-ins these are.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

REFUSED = "refused"


@contextmanager
def engine(path: Sequence[str] = ()) -> Iterator[Callable[..., Any]]:
    """A caller of functions in the worker, which imports SGLang once; that in the folders of `path`, if it is there."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_boot, initargs=(path,)) as pool:
        yield lambda function, *arguments: pool.submit(function, *arguments).result()


def _boot(path: Sequence[str]) -> None:
    sys.path[:0] = path
    from precc_sglang.upstream.worker import loaded

    warnings.filterwarnings("ignore")
    sys.stderr = sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    problem = loaded()
    assert problem is None, problem


# --- the matchers ------------------------------------------------------------------------------------


def _or_refused(answer: Callable[[], Any]) -> Any:
    try:
        return answer()
    except ValueError:
        return REFUSED


def skipped(prefix: str, entries: Sequence[str], packed: Mapping[str, list[str]]) -> bool | str:
    """`is_layer_skipped`."""
    from sglang.srt.layers.quantization.utils import is_layer_skipped

    return _or_refused(lambda: is_layer_skipped(prefix, list(entries), packed))  # type: ignore[no-any-return]


def excluded(prefix: str, entries: Sequence[str]) -> bool:
    """`ModelOptQuantConfig.is_layer_excluded`."""
    from sglang.srt.layers.quantization.modelopt_quant import ModelOptFp8Config

    return bool(ModelOptFp8Config(exclude_modules=list(entries)).is_layer_excluded(prefix))


def ignored(prefix: str, entries: Sequence[str], packed: Mapping[str, list[str]]) -> bool | str:
    """`should_ignore_layer`."""
    from sglang.srt.layers.quantization.compressed_tensors.utils import should_ignore_layer

    return _or_refused(lambda: should_ignore_layer(prefix, entries, packed))  # type: ignore[no-any-return]


def target(prefix: str, kind: str, targets: Sequence[str], packed: Mapping[str, list[str]]) -> str | None:
    """`find_matched_target`, for a module of some class."""
    from sglang.srt.layers.quantization.compressed_tensors.utils import find_matched_target

    module = type(kind, (), {})()
    found = _or_refused(lambda: find_matched_target(prefix, module, targets, packed))
    return None if found == REFUSED else found


def has_fp4_experts(folder: str) -> bool:
    """`ModelConfig.is_fp4_experts`, of a checkpoint folder."""
    from sglang.srt.configs.model_config import ModelConfig

    return bool(ModelConfig(folder).is_fp4_experts)


def mixed(prefix: str, layers: Mapping[str, str], packed: Mapping[str, list[str]]) -> str | None:
    """`ModelOptMixedPrecisionConfig.resolve_quant_algo`."""
    from sglang.srt.layers.quantization.modelopt_quant import ModelOptMixedPrecisionConfig

    config = ModelOptMixedPrecisionConfig.from_config(
        {
            "quant_algo": "MIXED_PRECISION",
            "kv_cache_quant_algo": None,
            "quantized_layers": {name: {"quant_algo": algo} for name, algo in layers.items()},
            "packed_modules_mapping": packed,
        }
    )
    answer = getattr(config, "resolve_quant_algo", None) or config._resolve_quant_algo
    return _or_refused(lambda: answer(prefix))  # type: ignore[no-any-return]


# --- arguments and variables -------------------------------------------------------------------------


def parsed_arguments(path: str) -> dict[str, Any]:
    """What SGLang's own parser makes of a `--config` file."""
    import argparse

    from sglang.srt.server_args import ServerArgs
    from sglang.srt.utils.server_args_config_parser import ConfigArgumentMerger

    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    merged = ConfigArgumentMerger(parser=parser).merge_config_with_args(["--model-path", "m", "--config", path])
    return vars(parser.parse_args(merged))


def known_arguments() -> set[str]:
    """The long names of the arguments that SGLang declares."""
    import argparse

    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    return {name.removeprefix("--") for action in parser._actions for name in action.option_strings}


def known_variables() -> set[str]:
    """The environment variables that SGLang declares."""
    from sglang.srt import environ

    return {name for name in dir(environ.envs) if name.isupper()}


# --- compressed-tensors' own library -----------------------------------------------------------------


def matched(names: Sequence[str], targets: Sequence[str], ignore: Sequence[str]) -> list[bool]:
    """`compressed_tensors.is_match` of linear layers by name: what another reader of the config quantizes."""
    import torch
    from compressed_tensors.utils.match import is_match

    linear = torch.nn.Linear(1, 1, device="meta")
    return [bool(is_match(name, linear, list(targets), list(ignore))) for name in names]
