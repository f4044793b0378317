"""A `config.json` of another model than the weights and the contract: refused by `convert`, found by `audit`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from converter.audits import Conversions
from converter.conversions import Case
from converter.models import CONFIGS, config_of

from precc.api import compile_source
from precc.contract import Contract
from precc.graph.config import describe
from precc.graph.errors import ModelError
from precc.graph.families import families
from precc.source import SourceFile
from precc_converter import NotConverted
from precc_converter.described import other_model

WHERE = Path("config.json")

Change = Callable[[dict[str, Any]], object]


def _with(**fields: Any) -> Change:
    return lambda shown: shown.update(fields)


CHANGES: dict[str, tuple[Change, str]] = {
    "layers": (_with(num_hidden_layers=5), "num_hidden_layers is 5, not 4"),
    "experts": (_with(num_experts=8), "num_experts is 8, not 4"),
    "experts a token": (_with(num_experts_per_tok=1), "num_experts_per_tok is 1, not 2"),
    "heads": (_with(num_attention_heads=8), "num_attention_heads is 8, not "),
    "groups": (_with(num_key_value_heads=1), "num_key_value_heads is 1, not "),
    "width": (_with(hidden_size=512), "hidden_size is 512, not 256"),
    "experts' width": (_with(moe_intermediate_size=64), "moe_intermediate_size is 64, not "),
    "vocabulary": (_with(vocab_size=77), "vocab_size is 77, not "),
    "ties": (_with(tie_word_embeddings=True), "tie_word_embeddings is true, not false"),
    "dense layers": (_with(mlp_only_layers=[1]), "mlp_only_layers is [1], not "),
    "dtype": (_with(torch_dtype="float16"), 'dtype is "fp16", not "bf16"'),
    "another architecture": (_with(architectures=["LlamaForCausalLM"]), "is of a LlamaForCausalLM, the contract of a"),
    "everything": (
        _with(hidden_size=512, num_experts=8, vocab_size=77, num_hidden_layers=5, mlp_only_layers=[1], head_dim=16),
        "and 2 more",
    ),
}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Conversions:
    """The conversion that is audited, and damaged in copies."""
    return Conversions(tmp_path_factory)


def edit(path: Path, change: Change) -> None:
    """Another content for a JSON file."""
    shown = json.loads(path.read_text())
    change(shown)
    path.write_text(json.dumps(shown))


@pytest.mark.parametrize("name", CHANGES)
def test_a_conversion_refuses_it_before_the_first_shard(original: Case, tmp_path: Path, name: str) -> None:
    """What the file says, what the contract was compiled for, and nothing is left behind."""
    change, said = CHANGES[name]
    made = Case(shutil.copytree(original.source, tmp_path / "source"), original.compiled)
    edit(made.source / "config.json", change)
    with pytest.raises(NotConverted) as refusal:
        made.convert(tmp_path / "out")
    (finding,) = refusal.value.findings
    assert finding.code == "P610"
    assert finding.message.startswith(f"{made.source / 'config.json'} is of a")
    assert said in finding.message
    assert "config.json that belongs to these weights" in str(finding.help)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", CHANGES)
def test_an_audit_finds_it(written: Conversions, tmp_path: Path, name: str) -> None:
    """Though every tensor is right: the server would build another model around them."""
    change, said = CHANGES[name]
    out = written("nvfp4_rl").copy(tmp_path / "out")
    out.edit("config.json", change)
    finding = out.finding()
    assert finding.code == "P610"
    assert said in finding.message


def test_a_configuration_that_describes_no_model_is_refused(original: Case, tmp_path: Path) -> None:
    """With the field that it lacks."""
    made = Case(shutil.copytree(original.source, tmp_path / "source"), original.compiled)
    edit(made.source / "config.json", lambda shown: shown.pop("hidden_size"))
    with pytest.raises(NotConverted, match=r"P604 .*config.json: `hidden_size` is missing"):
        made.convert(tmp_path / "out")


def _contract(config: Mapping[str, Any], folder: Path) -> Contract:
    (folder / "config.json").write_text(json.dumps(config))
    policy = "targets: converter\ndefault: bf16\n"
    return compile_source(SourceFile("p.prec", policy), str(folder / "config.json"))


def _other_values(value: Any) -> Iterator[Any]:
    """Values of the same kind that a field may also have."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, value * 2, value // 2, 1, 3)
    elif isinstance(value, list):
        yield from (value[1:], [*value, 0], value[::-1])
    elif value is None:
        yield 64


@pytest.mark.parametrize("family", CONFIGS)
def test_every_field_of_every_family_is_compared(family: str, tmp_path: Path) -> None:
    """Under the key that the family has for it, at the top or in the `text_config` of a multimodal model."""
    config = config_of(family)
    contract = _contract(config, tmp_path)
    assert other_model(config, WHERE, contract) is None
    fields = {field.key for known in families() if known.name == family for field in known.fields}
    compared = set()
    named = {key: config[key] for key in ("architectures", "vision_config") if key in config}
    for key in fields & config.keys() - {"num_nextn_predict_layers", "mtp_num_hidden_layers"}:
        for value in _other_values(config[key]):
            changed = {**config, key: value}
            if value == config[key] or not _is_described(changed):
                continue
            compared.add(key)
            nested = {**named, "text_config": changed}
            for shown in (changed, nested):
                finding = other_model(shown, WHERE, contract)
                assert finding is not None, key
                assert f"{key} is " in finding.message
    within = {"hidden_size"} if "vision_config" in config else set()  # no other fits the tower's projector
    assert {"num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size"} - within <= compared


def _is_described(config: Mapping[str, Any]) -> bool:
    try:
        describe(config, "config.json")
    except ModelError:
        return False
    return True


def test_how_weights_are_stored_is_no_difference(tmp_path: Path) -> None:
    """Headers say what is stored; a conversion writes another quantization, at the top or nested."""
    config = config_of("qwen3_moe")
    contract = _contract(config, tmp_path)
    for quantization in ({"quant_method": "fp8", "weight_block_size": [128, 128]}, {"quant_method": "modelopt"}):
        assert other_model({**config, "quantization_config": quantization}, WHERE, contract) is None
        nested = {**config, "text_config": {"compression_config": quantization}}
        assert other_model(nested, WHERE, contract) is None


def test_prediction_layers_that_are_declared_and_not_stored_are_no_difference(tmp_path: Path) -> None:
    """Releases leave them out; a contract with one more than is declared is of another model."""
    config = config_of("deepseek_v3")
    without = _contract({**config, "num_nextn_predict_layers": 0}, tmp_path)
    assert other_model(config, WHERE, without) is None
    with_one = _contract(config, tmp_path)
    finding = other_model({**config, "num_nextn_predict_layers": 0}, WHERE, with_one)
    assert finding is not None
    assert "num_nextn_predict_layers is 0, not 1" in finding.message
