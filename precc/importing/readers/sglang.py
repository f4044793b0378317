"""What `precc compile` wrote for SGLang: its folder, one of its files, or a checkpoint that was converted for it.

Such a file names a contract, and its lists have the names of SGLang's own modules: fused ones, and those of its draft
model. So the `sglang` target is asked what the server makes of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

from precc.backend import CONTRACT_LINE, Foreign, Importing, Unsupported, find_backend
from precc.diagnostics import Diagnostic, error, info
from precc.graph.model import ModelGraph
from precc.importing.checkpoint import LEGACY, WRITTEN, config_section, kv_cache, legacy_section
from precc.importing.reading import Document, Reading, Source, Unimportable
from precc.records import replace

TOOL = "precc's own artifacts for SGLang"
RANK = 5

OPEN = "P910"
DIGEST = "precc_contract"
SERVER = "server.yaml"
BESIDE = (SERVER, "env.json", "env.sh")
SIZES = {"tp-size": "tp", "pp-size": "pp", "ep-size": "ep", "attn-dp-size": "dp", "dp-size": "dp"}
_CACHES = {"bf16": "bf16", "bfloat16": "bf16", "fp8_e4m3": "fp8"}


def recognizes(source: Source) -> bool:
    """Whether a quantization config, or a server's arguments, name a contract."""
    return any(map(_names_contract, source.documents))


def _names_contract(document: Document) -> bool:
    sections = (document.section(), document.section("quantization_config"))
    if any(said is not None and DIGEST in said and not _is_planned(said) for said in sections):
        return True
    return document.name == SERVER and document.text.startswith(CONTRACT_LINE)


def _is_planned(said: Mapping[str, Any]) -> bool:
    """A checkpoint that was converted for no server."""
    return said.get("quant_method") == "precc"


def read(source: Source, graph: ModelGraph) -> Reading:
    """What a server would make of the files, and what they leave open."""
    texts = dict(_texts(source))
    if not ({WRITTEN, LEGACY} & texts.keys()):
        problem = f"{SERVER} names a contract, and the quantization config that it starts a server with is not here"
        raise Unimportable([error("P901", problem, help="import the folder that `precc compile` wrote")])
    try:
        found = cast(Importing, find_backend("sglang")).read_foreign(graph, (), {}, texts)
    except Unsupported as refusal:
        raise Unimportable(_named(finding, source) for finding in refusal.findings) from None
    arguments = _arguments(source)
    return Reading(
        decisions=found.decisions,
        findings=tuple(_open(found.remarks)),
        kv_cache=_kv_cache(source, arguments),
        rollout=dict(_layout(arguments, found)),
    )


def _layout(arguments: Mapping[str, Any], found: Foreign) -> Iterator[tuple[str, str]]:
    """What the arguments state: sizes, and a Hopper where FP8 blocks have no kernels chosen for a Blackwell."""
    formats = {decision.weight.format for _, decision in found.decisions if decision is not None}
    if arguments and "fp8_block" in formats and "fp8-gemm-backend" not in arguments:
        yield "gpu", "h200"
    yield from ((key, str(arguments[name])) for name, key in SIZES.items() if name in arguments)


def _open(remarks: tuple[str, ...]) -> Iterator[Diagnostic]:
    yield from (info(OPEN, remark) for remark in remarks)


def _named(finding: Diagnostic, source: Source) -> Diagnostic:
    """The finding about the files that are here, which the target knows by those of a compile."""
    section, message = config_section(source), finding.message.replace("sglang/", "")
    return replace(finding, message=message.replace(WRITTEN, section.where) if section is not None else message)


def _texts(source: Source) -> Iterator[tuple[str, str]]:
    """The files by the names that a compile gives them; the config of a checkpoint is a part of a file."""
    section = config_section(source)
    if section is not None:
        yield WRITTEN, json.dumps(section.content)
    elif source.document(WRITTEN) is not None:
        yield WRITTEN, "null"
    for document in source.documents:
        if document.name in BESIDE or _is_legacy(source, document):
            yield LEGACY if _is_legacy(source, document) else document.name, document.text


def _is_legacy(source: Source, document: Document) -> bool:
    return document.section("quantization") is not None and legacy_section(source) is not None


def _arguments(source: Source) -> Mapping[str, Any]:
    document = source.document(SERVER)
    return (document.section() or {}) if document is not None else {}


def _kv_cache(source: Source, arguments: Mapping[str, Any]) -> str | None:
    """What the server is told, else what the checkpoint declares. Raises Unimportable."""
    said = arguments.get("kv-cache-dtype")
    if said is not None:
        if said not in _CACHES:
            raise Unimportable([error("P902", f"{SERVER}: `kv-cache-dtype: {said}` has no spelling")])
        return _CACHES[said]
    sections = (config_section(source), legacy_section(source))
    return next((cache for section in sections if section is not None and (cache := kv_cache(section))), None)
