"""`precc import` as a command: what it prints and writes, and one clear error for everything else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli.commands import Result, precc

from precc.cli import main

NaN = float("nan")
BLOCKS = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
MODEL = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "vocab_size": 512,
    "tie_word_embeddings": False,
    "rms_norm_eps": 1e-6,
    "torch_dtype": "bfloat16",
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project, which is the current folder."""
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def checkpoint(project: Path) -> Path:
    """A checkpoint's folder with a configuration whose list keeps the first layer."""
    folder = project / "tiny-fp8"
    folder.mkdir()
    names = [f"model.layers.0.{part}" for part in ("self_attn", "mlp")]
    write(folder / "config.json", {**MODEL, "quantization_config": {**BLOCKS, "modules_to_not_convert": names}})
    return folder


def write(path: Path, content: Any) -> None:
    """This writes JSON."""
    path.write_text(json.dumps(content))


@pytest.fixture
def run(project: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """This runs `precc import` in this process."""

    def run(*arguments: str) -> Result:
        status = main(["import", *arguments])
        return Result(status, *capsys.readouterr())

    return run


def test_a_configuration_says_its_own_model(run: Any, checkpoint: Path) -> None:
    """A `config.json` or its folder needs no `--model`; the policy goes to standard output and nothing else does."""
    done = run(str(checkpoint / "config.json"))
    assert done.status == 0
    assert done.out.splitlines()[:2] == ["# Imported from config.json for tiny-fp8.", 'policy "tiny-fp8"']
    assert "layers[0]: bf16" in done.out
    assert run(str(checkpoint)).out.replace("the folder tiny-fp8", "config.json") == done.out


def test_what_is_written_compiles(run: Any, checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file that `-o` names is whole, formatted, and compiles without an error for the targets that it names."""
    done = run(str(checkpoint), "-o", "mine.prec")
    assert done.status == 0
    assert done.out == "mine.prec: 1 rule for 47 tensors, all compared\n"
    text = Path("mine.prec").read_text()
    assert 'policy "mine"' in text
    assert main(["fmt", "--check", "mine.prec"]) == 0
    unquantized = {key: value for key, value in MODEL.items() if key != "quantization_config"}
    write(Path("model.json"), unquantized)
    capsys.readouterr()
    assert main(["compile", "mine.prec", "--model", "model.json"]) == 0, capsys.readouterr().err


def test_findings_stand_beside_the_policy(run: Any, checkpoint: Path) -> None:
    """A dead rule is on the error stream with its code; the status stays 0."""
    config = json.loads((checkpoint / "config.json").read_text())
    config["quantization_config"]["modules_to_not_convert"] += ["model.layers.1.self_attn.nothing"]
    write(checkpoint / "config.json", config)
    done = run(str(checkpoint))
    assert done.status == 0
    assert "warning[P903]: 1 rule reaches nothing: `model.layers.1.self_attn.nothing`" in done.err
    assert "P903" not in done.out


def test_machines_get_one_object(run: Any, checkpoint: Path) -> None:
    """The shape that the help documents."""
    shown = run(str(checkpoint), "--output-format", "json").json
    keys = "tool model policy tensors rules kv_cache targets source_rules findings"
    assert list(shown) == keys.split()
    assert shown["model"] == "tiny-fp8"
    assert shown["source_rules"][0] == {
        "text": "model.layers.0.self_attn",
        "where": "config.json: quantization_config.modules_to_not_convert[0]",
        "matched": 6,
        "beyond": None,
        "beaten": False,
    }
    assert shown["policy"].startswith("# Imported from")


@pytest.fixture
def calibrated(checkpoint: Path) -> Path:
    """The same checkpoint with inputs that have stored scales."""
    said = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}
    write(checkpoint / "config.json", {**MODEL, "quantization_config": said})
    return checkpoint


def test_a_target_that_refuses_is_left_out(run: Any, calibrated: Path) -> None:
    """A converter has no stored input scales to write: the policy names the targets that remain."""
    done = run(str(calibrated))
    assert "warning[P909]: the target converter refuses the policy: P701" in done.err
    (line,) = [line for line in done.out.splitlines() if line.startswith("targets: ")]
    assert "sglang" in line
    assert "converter" not in line


def test_one_target_may_be_asked_for(run: Any, calibrated: Path) -> None:
    """Then only that one has its say."""
    done = run(str(calibrated), "--target", "sglang")
    assert "targets:" not in done.out
    assert "P909" not in done.err


def test_scales_that_only_hopper_has_say_so(run: Any, checkpoint: Path) -> None:
    """A trainer multiplies FP8 blocks with FP32 scales on no other GPU."""
    assert "train: gpu=h200" in run(str(checkpoint), "--target", "te").out


def test_a_legacy_file_needs_a_model(run: Any, project: Path) -> None:
    """It does not say which model it is for; `--model` does."""
    write(Path("hf_quant_config.json"), {"quantization": {"quant_algo": "NVFP4", "exclude_modules": ["lm_head"]}})
    done = run("hf_quant_config.json")
    assert done.status == 2
    assert "does not say which model it is for" in done.err
    assert run("hf_quant_config.json", "--model", "qwen3-8b", "--target", "sglang").status == 0


@pytest.mark.parametrize(
    "name, content, words",
    [
        ("config.json", "{", "is no valid JSON"),
        ("config.json", '{"a": 1, "a": 2}', "`a` stands twice in one object"),
        ("config.json", "[" * 100_000, "is nested too deep"),
        ("config.json", '{"architectures": ["Qwen3ForCausalLM"]}', "is an unquantized model"),
        ("config.json", '{"model_type": "qwen3", "quantization_config": null}', "is an unquantized model"),
        ("notes.yaml", "a: [", "is no valid YAML"),
        ("policy.txt", "hello", "says nothing about precision"),
    ],
)
def test_a_file_that_is_nothing_to_import_is_one_error(
    run: Any, project: Path, name: str, content: str, words: str
) -> None:
    """What, where, and what is read; status 1 and no output."""
    Path(name).write_text(content)
    done = run(name, "--model", "qwen3-8b")
    assert done.status == 1
    assert done.out == ""
    assert done.err.count("error[P901]") == 1
    assert words in done.err


def section(**said: Any) -> str:
    """A `config.json` with a section about quantization."""
    return json.dumps({"quantization_config": said})


OTHER = json.dumps({**MODEL, "architectures": ["LlamaForCausalLM"], "quantization_config": BLOCKS})

MESSY: dict[str, tuple[dict[str, str], str]] = {
    "empty": ({}, "no file of"),
    "text": ({"readme.txt": "hello"}, "no file of"),
    "shards": ({"model-00001-of-00001.safetensors": "", "model.safetensors.index.json": "{}"}, "no file of"),
    "unquantized": ({"config.json": json.dumps(MODEL)}, "is an unquantized model"),
    "twice": ({"config.json": '{"a": NaN, "a": 1}', "recipe.yaml": "x: 1"}, "`a` stands twice in one object"),
    "modifier": ({"recipe.yaml": "a_stage: {a_modifiers: {FancyPruner: {}}}"}, "FancyPruner: what this modifier does"),
    "nan in blocks": ({"config.json": section(**{**BLOCKS, "weight_block_size": [NaN, 128]})}, "[nan, 128]"),
    "nan in groups": ({"config.json": section(quant_algo="NVFP4", group_size=NaN)}, "groups of nan"),
    "other class": ({"config.json": OTHER}, "configuration of LlamaForCausalLM; qwen3-8b is Qwen3ForCausalLM"),
}


@pytest.mark.parametrize("files, words", MESSY.values(), ids=MESSY)
def test_a_messy_folder_is_one_error(run: Any, project: Path, files: dict[str, str], words: str) -> None:
    """What is wrong, in one finding; no policy, and no traceback."""
    Path("messy").mkdir()
    for name, text in files.items():
        (Path("messy") / name).write_text(text)
    done = run("messy", "--model", "qwen3-8b", "-o", "policy.prec")
    assert done.status == 1
    assert done.out == ""
    assert done.err.count("error[P90") == 1
    assert words in done.err
    assert not Path("policy.prec").exists()


def test_a_folder_without_a_model_says_first_what_it_lacks(run: Any, project: Path) -> None:
    """That there is nothing to import, not that a model has to be named for it."""
    Path("messy").mkdir()
    assert "says anything about precision" in run("messy").err


def test_a_file_for_another_model_is_doubted(run: Any, project: Path) -> None:
    """None of its names is one of the model's."""
    names = [f"backbone.layers.{layer}.mixer.in_proj" for layer in range(3)]
    write(Path("config.json"), {"quantization_config": {**BLOCKS, "modules_to_not_convert": names}})
    done = run("config.json", "--model", "qwen3-8b")
    assert "is it for this model?" in done.err


def test_a_file_of_many_megabytes_is_refused_by_its_size(run: Any, project: Path, monkeypatch: Any) -> None:
    """Before it is parsed."""
    monkeypatch.setattr("precc.importing.sources.MAX_BYTES", 1000)
    Path("config.json").write_text("[" + "1," * 1000 + "1]")
    assert "is larger than 1,000 bytes" in run("config.json", "--model", "qwen3-8b").err


def test_a_binary_and_a_missing_file_are_errors(run: Any, project: Path) -> None:
    """Neither is a traceback."""
    Path("config.json").write_bytes(b"\xff\xfe\x00")
    assert "is no text in UTF-8" in run("config.json", "--model", "qwen3-8b").err
    assert "cannot be read" in run("none.json", "--model", "qwen3-8b").err


def test_what_is_refused_leaves_nothing_behind(run: Any, checkpoint: Path) -> None:
    """No policy, and an earlier one stays as it was."""
    config = json.loads((checkpoint / "config.json").read_text())
    config["quantization_config"]["weight_block_size"] = [64, 64]
    write(checkpoint / "config.json", config)
    Path("mine.prec").write_text("default: bf16\n")
    done = run(str(checkpoint), "-o", "mine.prec")
    assert done.status == 1
    assert "error[P902]" in done.err
    assert Path("mine.prec").read_text() == "default: bf16\n"
    assert sorted(path.name for path in Path().iterdir()) == [".git", "mine.prec", "tiny-fp8"]


@pytest.mark.parametrize(
    "output, words", [("tiny-fp8", "is a folder"), ("none/p.prec", "there is no folder"), (None, "is what is imported")]
)
def test_an_output_that_cannot_be_is_refused_first(run: Any, checkpoint: Path, output: str | None, words: str) -> None:
    """Before anything is read."""
    config = str(checkpoint / "config.json")
    done = run(config, "-o", output or config)
    assert done.status == 2
    assert words in done.err


def test_an_import_loads_no_torch(project: Path, checkpoint: Path) -> None:
    """Neither torch nor an engine is imported for it."""
    code = (
        "import sys; from precc.cli import main; "
        f"status = main(['import', {str(checkpoint)!r}, '-o', 'mine.prec']); "
        "heavy = sorted({'torch', 'sglang', 'transformer_engine', 'megatron'} & set(sys.modules)); "
        "sys.exit(status or bool(heavy))"
    )
    import subprocess
    import sys

    assert subprocess.run([sys.executable, "-c", code], cwd=project, capture_output=True).returncode == 0


def test_the_help_shows_examples(project: Path) -> None:
    """In a process of its own, as users run it."""
    done = precc("import", "--help", cwd=project)
    assert done.status == 0
    assert "precc import ./checkpoint -o policy.prec" in done.out
