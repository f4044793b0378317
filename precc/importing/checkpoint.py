"""What a checkpoint says about its quantization: `config.json`, `hf_quant_config.json`, and whether they agree.

In `config.json` the section is `quantization_config`; a multimodal model may keep it in its `text_config`, and
compressed-tensors once wrote `compression_config`. ModelOpt writes the same facts, under other keys, in
`hf_quant_config.json` below `quantization`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from precc.diagnostics import Diagnostic, error, warning
from precc.graph.model import Tensor
from precc.importing.reading import Document, Source, Unimportable
from precc.records import field, record
from precc.syntax.words import Role

CONFIG, LEGACY = "config.json", "hf_quant_config.json"
WRITTEN = "quantization_config.json"
"""The section of `config.json` in a file of its own, as `precc compile` writes it for a server."""

_PLACES = (("quantization_config",), ("text_config", "quantization_config"), ("compression_config",))

NO_SPELLING = "P902"
UNREAD = "P907"


@record
class Section:
    """One section about quantization: where it stands (`config.json: quantization_config`), and what it says."""

    where: str
    content: Mapping[str, Any] = field(repr=False)

    @property
    def method(self) -> str:
        """`quant_method` in small letters; empty where the section has none, as ModelOpt's own file."""
        return str(self.content.get("quant_method") or "").lower()

    def names(self, *keys: str) -> tuple[str, tuple[str, ...]]:
        """The first of some lists of names that is there, with its key. Raises Unimportable."""
        key = next((key for key in keys if self.content.get(key) is not None), keys[0])
        listed = self.content.get(key) or []
        if not isinstance(listed, list) or not all(isinstance(entry, str) for entry in listed):
            raise self.refused(f"`{key}` is no list of names")
        return key, tuple(listed)

    def refused(self, problem: str, help: str | None = None) -> Unimportable:
        """The section cannot be read as a policy: what it says has no spelling, or is not what it should be."""
        return Unimportable([error(NO_SPELLING, f"{self.where}: {problem}", help=help)])

    def unread(self, known: Iterable[str]) -> Iterator[Diagnostic]:
        """One finding for all keys beside the known ones."""
        strange = sorted(set(self.content) - set(known))
        if strange:
            words = ", ".join(f"`{key}`" for key in strange)
            yield warning(UNREAD, f"{self.where}: {words} {'is' if len(strange) == 1 else 'are'} not read")


def config_section(source: Source) -> Section | None:
    """The section in `config.json`, in a file of another name that holds a model's configuration, or by itself."""
    document = _config(source)
    if document is None:
        return None
    found = ((keys, document.section(*keys)) for keys in _PLACES)
    within = (Section(f"{document.name}: {'.'.join(keys)}", said) for keys, said in found if said is not None)
    return next(within, None) or _bare(document)


def _bare(document: Document) -> Section | None:
    """A file that is such a section, as a compile writes it: it names a method and no model."""
    said = document.section()
    is_bare = said is not None and "quant_method" in said and not ({"architectures", "model_type"} & said.keys())
    return Section(document.name, said) if is_bare and said is not None else None


def legacy_section(source: Source) -> Section | None:
    """The section in `hf_quant_config.json`, or in a file of another name that has its form."""
    document = source.document(LEGACY) or _alone(source)
    said = document.section("quantization") if document is not None else None
    if document is None or said is None or "quant_algo" not in said:
        return None
    return Section(f"{document.name}: quantization", said)


def _config(source: Source) -> Document | None:
    return source.document(CONFIG, WRITTEN) or _alone(source)


def _alone(source: Source) -> Document | None:
    return None if source.is_folder or not source.documents else source.documents[0]


def model_config(source: Source) -> Mapping[str, Any] | None:
    """The model's own configuration without what it says about quantization; None where the source has none."""
    document = _config(source)
    said = document.section() if document is not None else None
    if said is None or not ({"architectures", "model_type"} & said.keys()):
        return None
    text = said.get("text_config")
    text = {**text, "quantization_config": None} if isinstance(text, dict) else text
    return {**said, "quantization_config": None, **({"text_config": text} if text is not None else {})}


# --- what a tool may quantize ------------------------------------------------------------------------


def is_convertible(tensor: Tensor) -> bool:
    """Whether a rule about all linear layers reaches a tensor.

    Embeddings, routers, expert gates, and projections that every engine multiplies in high precision are built as
    other modules; towers are never served quantized unless a rule names them.
    """
    if not tensor.is_gemm or tensor.outer in (Role.VISION, Role.AUDIO):
        return False
    return not tensor.protected or is_head(tensor)


_LINEAR_ROUTERS = frozenset({"feed_forward.router", "router.proj"})
"""The ends of the routers that are `Linear` to `transformers`: Llama 4's and Gemma 4's."""


def has_own_class(tensor: Tensor) -> bool:
    """Whether `transformers` multiplies a tensor in a module of another class than `Linear`: embeddings, routers."""
    is_router = tensor.part == "router" and ".".join(tensor.path[-2:]) not in _LINEAR_ROUTERS
    return is_router or tensor.part == "embed"


def is_head(tensor: Tensor) -> bool:
    """Whether a tensor is the LM head: a linear layer to some tools, and never one to others."""
    return tensor.role is Role.LM_HEAD and tensor.outer is None


# --- the KV cache ------------------------------------------------------------------------------------

_CACHES = {"": "bf16", "FP8": "fp8", "FLOAT8": "fp8"}


def kv_cache(section: Section) -> str | None:
    """The format of the KV cache; None where the section has no word about it. Raises Unimportable."""
    said = {_cache(section, key) for key in ("kv_cache_quant_algo", "kv_cache_scheme") if key in section.content}
    if len(said) > 1:
        raise section.refused("`kv_cache_quant_algo` and `kv_cache_scheme` differ")
    return said.pop() if said else None


def _cache(section: Section, key: str) -> str:
    said = section.content[key]
    if isinstance(said, dict):
        is_fp8 = (said.get("num_bits"), said.get("type", "float"), said.get("dynamic", False)) == (8, "float", False)
        found = "fp8" if is_fp8 and said.get("strategy") in (None, "tensor") else None
    else:
        found = _CACHES.get(str(said or "").strip().upper())
    if found is None:
        raise section.refused(f"`{key}: {said}` is a KV cache that no policy can name", "a policy has bf16 and fp8")
    return found
