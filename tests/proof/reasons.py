"""Why one of the two is silent about a corruption: what only read-back finds, and what changes nothing."""

from __future__ import annotations

from collections.abc import Mapping

_NO_LAYER_REACHES_IT = "no linear layer of the model gets that far down the matchers"
_LOOKED_UP_LATE = "Megatron looks up a config when a layer gets to a matcher that names it, and none does"
_OWN_RECIPES = "every quantized layer has a recipe of its own, and no other one is counted by the flags"
_SAID_ALREADY = "it says what the engine does without it"
_NO_READER = "no layer runs a recipe or method that reads it"
_NEVER_ASKS = "the module never asks for a method; the entry is for other readers"

_OF_PLANS: Mapping[str, tuple[str, ...]] = {
    "the checkpoint that SGLang loads has an output beside the weight that it belongs to": (
        "a scale tensor is renamed",
    ),
    "the loader widens a BF16 scale to FP32, and cannot see that it was rounded": ("an output of another dtype",),
    "the checkpoint that SGLang loads has the plan's names and dtypes, and small shapes": (
        "an output transposed",
        "an output twice as wide",
    ),
    "a server sees what is written, not what it was made from": (
        "a source is renamed",
        "a source of another dtype",
        "a source of another shape",
        "the quantizer's format alone",
        "the quantizer's axis",
        "the quantizer's block",
        "the quantizer's scale",
        "the quantizer's profile",
        "the quantizer's four-over-six",
        "an outer scale of its own, or of others",
        "an outer scale shared",
    ),
    "the converter reads it, a server does not": (
        "a line stands twice",
        "a count",
        "a total",
        "another rule for shards",
        "other metadata",
        "another architecture",
        "another version",
    ),
    "what the first of a range of experts has stands in the checkpoint for all of them": ("one expert fewer",),
}

ENGINE_BLIND: Mapping[str, Mapping[str, str]] = {
    "te": {
        "the default matcher is dropped": "its layers are in BF16 by the flags; read-back wants them named",
        "a config is dropped": _LOOKED_UP_LATE,
        "a matcher points at another config": _LOOKED_UP_LATE,
        "a word of `megatron.args` is removed": "the models that judge are in BF16 with and without `--bf16`",
        "the two files of the environment differ": "the values in which they differ mean the same to the engine",
        "a forbidden argument is allowed": "launchers and `precc attest` read that list, the engine does not",
    },
    "sglang": {
        "another `weight_block_size`": "SGLang overrules the blocks of MXFP8, with a warning",
        "another `scale_fmt`": "the backends of block FP8 decide its scales; the word is for other readers",
        "the config declares an FP8 KV cache": "`kv-cache-dtype` decides it; the config is for other readers",
        "ModelOpt's own file differs": "SGLang reads one of the two files, other tools the other",
        "an argument is removed": "on this model and GPU SGLang would choose the same; read-back leaves nothing to it",
        "another argument": "another expert backend may compute otherwise, and builds the same parameters",
        "a further argument": "it changes no parameter of these models; read-back refuses what it does not know",
        "the two files of the environment differ": "the judge starts from `env.sh`; `env.json` is for other launchers",
    },
    "converter": {name: reason for reason, names in _OF_PLANS.items() for name in names},
}
"""Corruptions of which the engine's code may not see a variant that read-back sees, with why."""

EQUIVALENT: Mapping[str, Mapping[str, str]] = {
    "te": {
        "the default matcher is dropped": _NO_LAYER_REACHES_IT,
        "`enabled` is removed": _NO_LAYER_REACHES_IT,
        "two matchers are swapped": "no layer matches both",
        "a pattern one component shorter": "`*` matches across dots, so that it takes the same layers",
        "a matcher points at another config": "what gets that far down is in BF16 by the flags in any case",
        "a wider pattern": "it takes the same layers, or others whose own matcher says the same",
        "gradients in E5M2": "an FP4 recipe and one with a factory of its own do not read `fp8_format`",
        "quantized in BF16 layers": "no layer that gets this recipe is in a BF16 autocast, or it says so already",
        "a recipe that yields to the engine's": "the recipe around the layers is the same one",
        "a word of `megatron.args` is removed": _SAID_ALREADY,
        "a count of first or last layers": "counts without their flag are not read",
        "another format or recipe for all": _OWN_RECIPES,
        "a further argument": _OWN_RECIPES,
        "a variable is unset": _SAID_ALREADY,
        "a variable is contradicted": "recipes with a factory of their own do not read it",
        "a variable is set that is unset": _NO_READER,
    },
    "sglang": {
        "an exclusion is removed": _NEVER_ASKS,
        "one projection more is excluded": "the name is none that the model class asks by, or is excluded already",
        "a glob is excluded": "the list of this method knows no such pattern",
        "a key of the mix is added": _NEVER_ASKS,
        "another `group_size`": _SAID_ALREADY,
        "another `quant_method`": "SGLang finds the same method by the algorithms in the file",
        "another `weight_block_size`": _SAID_ALREADY,
        "another `scale_fmt`": "MXFP8 has scales of one type",
        "another scheme of a group": _SAID_ALREADY,
        "other targets of a group": "all that is quantized are experts",
        "ModelOpt's own file is missing": "the config in `config.json` says all; the other file is for other readers",
        "an argument is removed": _SAID_ALREADY,
        "another argument": "nothing would be folded: the shared expert of this model stays apart in any case",
        "a variable is unset": _SAID_ALREADY,
        "a variable is set that is unset": _NO_READER,
    },
    "converter": {
        "lines in another order": "where an output goes follows from its name",
    },
}
"""Corruptions that may leave every tensor decided as before, as engine and read-back both say, with why."""
