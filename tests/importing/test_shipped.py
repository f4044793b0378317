"""Every published quantization config imports, is short, compiles again for SGLang and is served the same."""

from __future__ import annotations

from functools import cache

import pytest
from importing.serving import REREAD, differences
from importing.shipped import MODELS, UNKNOWN, checkpoint_of, model_of, opened, published, source_of

from precc.graph.catalogue import catalogue
from precc.graph.reading import read_model
from precc.graph.shrinking import complete_config
from precc.importing.importing import Imported, import_policy
from precc.importing.reading import Document, Source
from precc.importing.trying import Tried, try_targets
from precc_sglang import backend

KNOWN = [file for file in published() if model_of(file) is not None]

NOT_SERVED = {}
"""Checkpoints whose files import, and whose format or class the `sglang` target lacks, with words of its refusal."""

SERVED = [file for file in KNOWN if checkpoint_of(file) not in NOT_SERVED]
REFUSED = [file for file in KNOWN if checkpoint_of(file) in NOT_SERVED]

MXFP4 = [f"deepseek-ai--DeepSeek-V4-{size}_config.json" for size in ("Flash", "Pro")]
FP8 = [f"sgl-project--DeepSeek-V4-{size}-FP8_config.json" for size in ("Flash", "Pro")]
"""Files with one section about quantization, the first two of checkpoints whose experts are in MXFP4: what says so is
beside it, in the rest of `config.json` and in the headers."""

DRAFTS = [f"nvidia--DeepSeek-V4-{size}-NVFP4_config.json" for size in ("Flash", "Pro")]
"""Files of checkpoints whose experts are in NVFP4, those of MTP layers in MXFP4 as they were released."""

TOLD = {**dict.fromkeys((*MXFP4, *FP8), "P907"), **dict.fromkeys(DRAFTS, "P910")}
"""The findings beside dead rules."""

DEAD = {"zai-org--GLM-5-FP8": 79, "zai-org--GLM-5.1-FP8": 79, "zai-org--GLM-5.2-FP8": 22}
"""The checkpoints with entries that reach nothing (`self_attn.indexers_proj`), and how many."""

PAIRS = sorted({checkpoint_of(f) for f in KNOWN if checkpoint_of(f) in {checkpoint_of(g) for g in KNOWN if g != f}})
"""The checkpoints that were published with both files."""


@cache
def imported(*files: str) -> Imported:
    """The policy that files of one checkpoint become."""
    name = model_of(files[0])
    assert name is not None
    return import_policy(source_of(*files), read_model(name), "imported")


def tried(file: str) -> Tried:
    """The policy of a file after SGLang had its say."""
    files = (file, REREAD[file]) if file in REREAD else (file,)
    return try_targets(imported(*files).text, read_model(model_of(file) or ""), [backend])


def test_every_published_file_has_a_model_or_a_reason() -> None:
    """Of the 66 files none is passed over."""
    checkpoints = {checkpoint_of(file) for file in published()}
    assert len(published()) == 66
    assert checkpoints == MODELS.keys() | UNKNOWN.keys()
    assert not MODELS.keys() & UNKNOWN.keys()
    assert set(MODELS.values()) <= set(catalogue())


@pytest.mark.parametrize("file", KNOWN)
def test_a_published_file_becomes_a_short_policy(file: str) -> None:
    """It has one rule or two, far from a dozen selectors, and no finding but dead rules."""
    done = imported(file)
    assert done.rules <= 2
    codes = {finding.code for finding in done.findings} - {"P903"}
    assert codes == ({TOLD[file]} if file in TOLD else set())
    assert done.text.startswith("# Imported from ")


@pytest.mark.parametrize("file", SERVED)
def test_a_published_file_is_served_the_same_after_an_import(file: str) -> None:
    """SGLang runs every tensor as before: method, stored parameters, scaling of inputs, KV cache."""
    policy = tried(file)
    assert policy.targets == ("sglang",), policy.findings
    done = policy.done["sglang"]
    assert not done.has_errors
    assert done.emissions[0].agree == done.emissions[0].tensors > 0
    experts = "mxfp4" if file in DRAFTS or REREAD.get(file) in DRAFTS else "fp8"
    assert list(differences(file, done, experts)) == []


@pytest.mark.parametrize("file", MXFP4)
def test_a_whole_configuration_is_served_as_its_headers_are(file: str) -> None:
    """With `expert_dtype: fp4` beside the section experts are in MXFP4, which SGLang finds in the headers."""
    graph = read_model(model_of(file) or "")
    whole = {**complete_config(graph), "quantization_config": opened(file)}
    text = import_policy(Source("it", (Document("config.json", "config.json", "", whole),)), graph, "it").text
    done = try_targets(text, graph, [backend]).done["sglang"]
    assert not done.has_errors
    assert list(differences(file, done, "mxfp4")) == []
    apart = list(differences(file, done, "fp8"))
    assert len(apart) == sum(tensor.experts is not None for tensor in graph.tensors)
    assert {(one.method, other.method) for _, one, other in apart} == {("fp8_block", "mxfp4")}


@pytest.mark.parametrize("file", REFUSED)
def test_a_format_that_the_target_lacks_is_imported_and_told(file: str) -> None:
    """The policy is written all the same; the target says why it refuses."""
    policy = tried(file)
    assert policy.targets == ()
    assert NOT_SERVED[checkpoint_of(file)] in policy.findings[-1].message


@pytest.mark.parametrize("file", KNOWN)
def test_dead_rules_are_counted(file: str) -> None:
    """The entries that reach nothing are those that were found by hand, and no others."""
    dead = [rule for rule in imported(file).reading.rules if not rule.matched and not rule.idle]
    assert len(dead) == DEAD.get(checkpoint_of(file), 0), [rule.text for rule in dead[:5]]
    assert all(rule.text.endswith(".self_attn.indexers_proj") for rule in dead)


@pytest.mark.parametrize("checkpoint", PAIRS)
def test_both_files_of_a_published_checkpoint_decide_the_same(checkpoint: str) -> None:
    """The folder with both becomes the policy of either; one pair differs, and that is told."""
    config, legacy = f"{checkpoint}_config.json", f"{checkpoint}_hf_quant_config.json"
    both = imported(config, legacy)
    differ = [finding.message for finding in both.findings if finding.code == "P905"]
    if checkpoint in APART:
        low, drafts = differ
        there = "in config.json: quantization_config, as stored in hf_quant_config.json"
        assert f": fp8_block {there}" in low
        assert drafts.startswith("`mtp.0.ffn.experts.")
        assert f": weight mxfp4, input mxfp8, train bf16 {there}" in drafts
    else:
        assert not differ
        assert both.text == imported(legacy).text.replace("hf_quant_config.json", "the folder checkpoint")


APART = {f"nvidia--DeepSeek-V4-{size}-NVFP4" for size in ("Flash", "Pro")}
"""Their `config.json` has attention in block FP8 and an MTP layer's experts in MXFP4, of which their
`hf_quant_config.json` has none."""
