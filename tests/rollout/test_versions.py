"""Two versions of SGLang whose rules differ: each compile follows the stated one, and that one's own code judges it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

import pytest
from proof.subjects import MODELS, ONE_A_FORMAT, Subject, chosen, policies, small_model, source_of
from rollout.older import VERSION, contract_of, older_folder
from rollout.support import CONFIG, ENVIRONMENT, LEGACY, SERVER, differing, edited, emitted, errors, findings, refusal

from precc.backend import Judgement, Unsupported
from precc.contract import Contract
from precc.pipeline import Settings, compile_policy
from precc_sglang import backend
from precc_sglang.upstream import Judge
from precc_sglang.versions import RELEASES, SGLANG

pytestmark = pytest.mark.slow

NEWEST = SGLANG[0]

Asked: TypeAlias = Callable[[Contract, Mapping[str, str]], Judgement]

TRIED = (*ONE_A_FORMAT, "fp8_block", "mxfp8_attention_nvfp4_experts")
READY = [subject for subject in chosen() if subject.policy in TRIED]
"""A policy for each format, and the one that mixes two: the versions differ in formats, not in backward modes."""


@pytest.fixture(scope="module")
def older() -> Iterator[Asked]:
    """The older engine, which starts once. What another policy had it serve alike is not asked again."""
    with Judge([older_folder()]) as judge:
        asked: dict[object, Judgement] = {}

        def once(contract: Contract, artifacts: Mapping[str, str]) -> Judgement:
            key = contract.tensors, tuple(text.replace(contract.digest, "") for text in artifacts.values())
            if key not in asked:
                asked[key] = judge(contract, artifacts)
            return asked[key]

        yield once


# --- every format ------------------------------------------------------------------------------------

UNSERVED = {"mxfp8_attention_nvfp4_experts", "mimo_v2", "minimax_m3", "nemotron_h", "deepseek_v4"}
"""What the older version may refuse where the newest does not: the policy with two formats, the families whose classes
it builds otherwise, and the one that mixes block FP8 with whatever a policy says of experts."""


@pytest.mark.parametrize("subject", READY, ids=str)
def test_the_older_engine_runs_what_is_compiled_for_it(older: Asked, subject: Subject) -> None:
    """Compiled with `rollout: sglang=0.5.16`: refused, where this version cannot, or judged tensor by tensor."""
    settings = Settings(rollout={"sglang": VERSION})
    made = compile_policy(source_of(subject.policy), small_model(subject.family), [backend], settings)
    refused = {finding.code for finding in made.findings if finding.is_error}
    if refused:
        newest = {code.code for code in subject.refusals("sglang")}
        assert refused == newest or UNSERVED & {subject.policy, subject.family}
        return
    assert made.binding is not None
    artifacts = {artifact.path: artifact.text for emission in made.emissions for artifact in emission.artifacts}
    found = older(made.binding.contract, artifacts)
    assert [finding.message for finding in found.findings] == []
    assert found.engines["sglang"] == VERSION
    assert found.agree == found.tensors > 0


@pytest.mark.parametrize("family", [family for family in MODELS if not Subject("bf16", family).refusals("sglang")])
def test_a_compile_that_states_no_version_is_for_the_newest(family: str) -> None:
    """The same files as with the newest stated: a version states no sizes."""
    policy = policies()["bf16"].text
    plain, named = emitted(contract_of(policy, family, "")), emitted(contract_of(policy, family, NEWEST))
    assert plain == named


# --- what only the newest runs -----------------------------------------------------------------------

STATIC = "weight fp8 per_tensor, input fp8 per_tensor static, train bf16"

# rule, policy, family, what the older engine would do with it
BEYOND: tuple[tuple[str, str, str, str], ...] = (
    (
        "p701_together",
        "@routed_experts: nvfp4 per_token\n@attention: mxfp8\n",
        "qwen3_moe",
        "as unquantized, inputs unquantized; the contract says mxfp8",
    ),
    (
        "p701_together",
        "@routed_experts: nvfp4 per_token\n@attention: fp8_block scales fp32\n",
        "glm4_moe",
        "as unquantized, inputs unquantized; the contract says fp8_block",
    ),
    ("p701_shared_experts", f"@shared_experts: {STATIC}\n", "deepseek_v2", "no attribute 'weight_block_size'"),
    ("p701_shared_experts", f"@shared_experts: {STATIC}\n", "glm4_moe", "no attribute 'weight_block_size'"),
)


@pytest.mark.parametrize(("rule", "policy", "family", "said"), BEYOND)
def test_what_only_the_newest_runs_is_refused_for_the_older(
    older: Asked, rule: str, policy: str, family: str, said: str
) -> None:
    """By the rule that is for it, which names the version that can; the older engine says that it was right to."""
    contract = contract_of(policy, family, VERSION)
    (message,) = errors(contract)
    assert message.startswith(f"SGLang {VERSION} ")
    (help,) = (finding.help for finding in findings(contract) if finding.message == message)
    assert f"`rollout: sglang={NEWEST}`" in str(help)
    assert errors(contract_of(policy, family, NEWEST)) == []
    judged = older(contract, emitted(contract))
    assert any(said in finding.message for finding in judged.findings)
    assert judged.agree < judged.tensors


@pytest.mark.parametrize("family", ["mimo_v2", "minimax_m3", "nemotron_h"])
def test_a_class_that_only_the_newest_has_so_is_refused_for_the_older(family: str) -> None:
    """With the version that serves it."""
    policy = policies()["bf16"].text
    contract = contract_of(policy, family, VERSION)
    with pytest.raises(Unsupported) as stopped:
        emitted(contract)
    (said,) = stopped.value.findings
    assert said.message == f"SGLang {VERSION}: the class for {contract.model.architecture} is not modelled"
    assert f"`rollout: sglang={NEWEST}`" in str(said.help)
    assert emitted(contract_of(policy, family, NEWEST))


# --- what both run, each in its own way --------------------------------------------------------------


@pytest.mark.parametrize("family", ["qwen3", "qwen3_moe", "deepseek_v3", "glm4_moe"])
def test_weight_only_nvfp4_is_a_mix_of_one_in_the_older(older: Asked, family: str) -> None:
    """Its ModelOpt FP4 method has no such algorithm, its mixed method has; the newest's files do not start there."""
    policy = "default: weight nvfp4, train bf16\nlayers[1], @mla?, q_a_proj?, kv_a_proj_with_mqa?: bf16\n"
    contract, newest = contract_of(policy, family, VERSION), contract_of(policy, family, NEWEST)
    assert json.loads(emitted(contract)[CONFIG])["quant_method"] == "modelopt_mixed"
    assert json.loads(emitted(newest)[CONFIG])["quant_algo"] == "W4A16_NVFP4"
    assert errors(contract) == errors(newest) == []
    assert differing(contract, emitted(contract)) == differing(newest, emitted(newest)) == []
    judged = older(contract, emitted(contract))
    assert (judged.findings, judged.agree) == ((), judged.tensors)


def test_the_newests_weight_only_nvfp4_does_not_start_in_the_older(older: Asked) -> None:
    """Read-back says so too: the algorithm has no meaning to that method."""
    policy = "@routed_experts: weight nvfp4, train bf16\n"
    contract, newest = contract_of(policy, "qwen3_moe", VERSION), contract_of(policy, "qwen3_moe", NEWEST)
    written, line = emitted(newest), "quantization: modelopt_"
    files = {path: text.replace(f"{line}mixed", f"{line}fp4") for path, text in emitted(contract).items()}
    files = {**files, CONFIG: written[CONFIG], LEGACY: written[LEGACY]}
    assert refusal(contract, files)[1].endswith("quant_algo W4A16_NVFP4, which modelopt_fp4 does not know")
    (stop,) = (finding.message for finding in older(contract, files).findings if finding.code == "P512")
    assert "ModelOpt currently only supports: FP8, NVFP4" in stop


def test_a_compressed_tensors_entry_takes_what_contains_it_in_the_older(older: Asked) -> None:
    """A list of another author's: the newest quantizes every attention layer, the older none; both read back so."""
    policy = "default: weight fp8 per_channel, input fp8 per_token, train bf16\n"
    expected = {VERSION: {"self_attn"}, NEWEST: set[str]()}
    for version, parts in expected.items():
        contract = contract_of(policy, "qwen3", version)
        files = edited(emitted(contract), CONFIG, ignore=["self_attn", "lm_head"])
        assert {name.split(".")[3] for name in differing(contract, files)} == parts
        if version == VERSION:
            judged = older(contract, files)
            (decided,) = (finding for finding in judged.findings if "as unquantized" in finding.message)
            assert "self_attn" in decided.message
            assert "mlp" not in decided.message


def test_an_exclusion_list_under_another_key_is_not_read_by_the_older(older: Asked) -> None:
    """`exclude_modules` in `config.json`: the newest takes it for the list, the older quantizes everything."""
    policy = f"default: {STATIC}\no_proj: bf16\n"
    for version, parts in {VERSION: {"o_proj", "lm_head"}, NEWEST: set[str]()}.items():
        contract = contract_of(policy, "qwen3", version)
        listed = json.loads(emitted(contract)[CONFIG])["ignore"]
        files = {path: text for path, text in emitted(contract).items() if not path.endswith("hf_quant_config.json")}
        files = edited(files, CONFIG, ignore=None, exclude_modules=listed)
        assert {name.split(".")[-2] for name in differing(contract, files)} == parts
        if version == VERSION:
            assert {finding.code for finding in older(contract, files).findings} >= {"P511"}


def test_a_layout_is_stated_by_the_arguments_that_a_version_has(older: Asked) -> None:
    """Attention data parallelism: one argument in the newest, a size and a switch in the older."""
    policy, layout = "@routed_experts: mxfp8\n", "tp=8 ep=4 dp=2 gpu=b200"
    contract = contract_of(policy, "qwen3_moe", VERSION, layout)
    lines = emitted(contract)[SERVER].splitlines()
    assert lines[-2:] == ["dp-size: 2", "enable-dp-attention: true"]
    assert "attn-dp-size: 2" in emitted(contract_of(policy, "qwen3_moe", NEWEST, layout))[SERVER].splitlines()
    assert differing(contract, emitted(contract)) == []
    assert older(contract, emitted(contract)).findings == ()
    off = "\n".join(line for line in lines if not line.startswith("enable-dp-attention"))
    assert "states no enable-dp-attention" in refusal(contract, {**emitted(contract), SERVER: off})[1]


def test_the_older_scales_block_fp8_inputs_by_fp32_numbers_on_hopper() -> None:
    """It does not read `scale_fmt`: dense layers are refused there, and read back as FP32-scaled."""
    policy = "@attention: fp8_block\n"
    contract = contract_of(policy, "qwen3", VERSION, "gpu=h100")
    (message,) = errors(contract)
    assert message.startswith(f"SGLang {VERSION} scales these inputs by FP32 numbers on `gpu=h100`")
    assert len(differing(contract, emitted(contract))) == len(list(contract.quantized()))
    assert errors(contract_of(policy, "qwen3", NEWEST, "gpu=h100")) == []
    assert errors(contract_of("@attention: fp8_block scales fp32\n", "qwen3", VERSION, "gpu=h100")) == []


def test_each_version_unsets_its_own_variables() -> None:
    """What only the older reads is unset for the older alone; its read-back misses it where it is not named."""
    contracts = {version: contract_of("@routed_experts: mxfp8\n", "qwen3_moe", version) for version in SGLANG}
    unset = {version: set(json.loads(emitted(made)[ENVIRONMENT])["unset"]) for version, made in contracts.items()}
    own = set(RELEASES[VERSION].variables)
    assert unset[VERSION] - unset[NEWEST] == own
    assert unset[NEWEST] <= unset[VERSION]
    others = emitted(contracts[NEWEST])
    mixed = {path: others[path] if "env." in path else text for path, text in emitted(contracts[VERSION]).items()}
    assert "neither sets nor unsets" in refusal(contracts[VERSION], mixed)[1]
