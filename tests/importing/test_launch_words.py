"""Launch scripts are read, not run: words, variables of precision, and what a script itself puts in."""

from __future__ import annotations

from precc.importing.launch_words import read_launch


def words(text: str) -> list[list[str]]:
    """The commands of a text."""
    return [list(command) for command in read_launch([text]).commands]


def test_a_line_goes_on_behind_a_backslash() -> None:
    """With either line ending; quotation marks are not part of a word."""
    assert words('run --a 1 \\\n  --b "x y"\n') == [["run", "--a", "1", "--b", "x y"]]
    assert words("run --a \\\r\n  --b\r\n") == [["run", "--a", "--b"]]


def test_comments_are_dropped() -> None:
    """At the beginning of a line and behind a space; a `#` inside a word is part of it."""
    assert words("run --a # --b\n   # --c\nrun x#y\n") == [["run", "--a"], ["run", "x#y"]]


def test_arrays_are_their_words() -> None:
    """Brackets are none; the array's name stays where it is used."""
    text = "ARGS=(\n   --fp8-format e4m3\n   --bf16\n)\nrun ${ARGS[@]}\n"
    assert read_launch([text]).words == ("ARGS=", "--fp8-format", "e4m3", "--bf16", "run", "${ARGS[@]}")


def test_a_variable_that_is_set_once_is_put_in() -> None:
    """One that is set to two values, or not at all, is left; a default counts where nothing is set."""
    text = "N=6\nexport M='7'\nK=1\nK=2\nrun $N ${M} ${K} ${L:-8} ${J}\n"
    assert words(text)[-1] == ["run", "6", "7", "${K}", "8", "${J}"]


def test_variables_of_precision_are_found_wherever_they_are_set() -> None:
    """Exported, in front of a command, in JSON inside quotation marks, in YAML; one that is unset again is not."""
    assert read_launch(
        [
            "export NVTE_BACKWARD_OVERRIDE=high_precision\n",
            "NVTE_USE_FAST_MATH=0 run\n",
            '{\n  \\"NVTE_FP8_BLOCK_SCALING_FP32_SCALES\\": \\"1\\",\n',
            '{"FLASHINFER_NVFP4_4OVER6": "1"}\n',
            "SGLANG_FLASHINFER_NVFP4_PER_TOKEN_ACTIVATION: '1'\n",
            "export NVTE_NVFP4_4OVER6=all\nunset NVTE_NVFP4_4OVER6\n",
            "echo $NVTE_NVFP4_DISABLE_RHT\nexport NVTE_NVFP4_DISABLE_RHT=$FROM_OUTSIDE\n",
        ]
    ).environment == {
        "NVTE_BACKWARD_OVERRIDE": "high_precision",
        "NVTE_USE_FAST_MATH": "0",
        "NVTE_FP8_BLOCK_SCALING_FP32_SCALES": "1",
        "FLASHINFER_NVFP4_4OVER6": "1",
        "SGLANG_FLASHINFER_NVFP4_PER_TOKEN_ACTIVATION": "1",
    }


def test_a_quotation_that_does_not_close_on_its_line_is_words_too() -> None:
    """As in a script that prints a document."""
    assert words("echo \"it's\nrun --a\n") == [["echo", "it", "s"], ["run", "--a"]]
