"""What SGLang makes of a published config and of the one that an import compiles to, tensor by tensor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy

from importing.shipped import opened

from precc.graph.model import Tensor
from precc.pipeline import Compilation
from precc.syntax.words import Role
from precc_sglang.reading.files import Files, open_files
from precc_sglang.reading.read import Server
from precc_sglang.served import Served

UNUSED = ("producer", "config_groups")
"""Keys of ModelOpt that SGLang carries along, and for its methods reads no format from."""

CALIBRATION = ("observer", "observer_kwargs", "block_structure")
"""Arguments of compressed-tensors that say how scales were found; the last is for blocks, and null here."""

BY_HEADERS = ("DeepseekV4ForCausalLM",)
EXPERTS = "routed_experts_quant_method"
"""The key whose value SGLang finds out from the headers of a checkpoint that lacks it, for some classes."""

_V4 = {
    f"nvidia--DeepSeek-V4-{size}-NVFP4_hf_quant_config.json": f"nvidia--DeepSeek-V4-{size}-NVFP4_config.json"
    for size in ("Flash", "Pro")
}
REREAD = {"nvidia--Qwen3.6-35B-A3B-NVFP4_config.json": "nvidia--Qwen3.6-35B-A3B-NVFP4_hf_quant_config.json", **_V4}
"""Files in whose place SGLang reads the other one of the folder: a mixed config without a word about the KV cache, and
beside a `config.json` that says all the old file."""


def differences(file: str, done: Compilation, experts: str) -> Iterator[tuple[str, Served, Served]]:
    """The tensors that a server runs otherwise under the published file than under the compiled ones.

    `experts` is what the headers of the checkpoint would say that routed experts are in, `fp8` or `mxfp4`.
    """
    assert done.binding is not None
    contract = done.binding.contract
    files = open_files({artifact.path: artifact.text for artifact in done.emissions[0].artifacts}, contract)
    after = Server(files, contract)
    found = {EXPERTS: experts} if contract.model.architecture in BY_HEADERS else {}
    before = Server(_published(file, files, found), contract)
    for tensor in filter(_is_asked, contract.tensors):
        one, other = before.reading(tensor).decision, after.reading(tensor).decision
        assert isinstance(one, Served)
        assert isinstance(other, Served)
        if one != other:
            yield tensor.name, one, other


def _is_asked(tensor: Tensor) -> bool:
    """A draft model is given the LM head of its target before it runs, whatever it was built with."""
    return not (tensor.mtp is not None and tensor.role is Role.LM_HEAD)


def _published(file: str, files: Files, found: Mapping[str, str]) -> Files:
    """The same start of a server with the published config in the place of the compiled one."""
    file = REREAD.get(file, file)
    said = deepcopy(opened(file))
    if said.get("quant_method") == "fp8":
        said |= found
    if said.get("quant_method") != "compressed-tensors":
        said = {key: value for key, value in said.items() if key not in UNUSED}
    for group in said.get("config_groups", {}).values():
        group["weights"] = {key: value for key, value in group["weights"].items() if key not in CALIBRATION}
    if said.get("fmt") == "float8_e4m3fn":  # no reader looks at it
        said["fmt"] = "e4m3"
    if file.endswith("_hf_quant_config.json"):
        return Files(None, {"quantization": said}, files.arguments, files.variables)
    return Files(said, None, files.arguments, files.variables)
