"""One YAML a pipeline stage, and the script that picks it: Megatron reads one path on every rank."""

from __future__ import annotations

import re

SCRIPT = "te/with_stage_recipe.sh"

_TEXT = """\
#!/usr/bin/env bash
# Runs one rank of a training job with the recipe of its pipeline stage:
#   torchrun --no-python … with_stage_recipe.sh python pretrain_gpt.py …
# precc contract {digest}
set -euo pipefail

stages={stages}
: "${{RANK:?set by the launcher}}" "${{WORLD_SIZE:?set by the launcher}}"

fail() {{
    echo "with_stage_recipe.sh: $1" >&2
    exit 2
}}

previous=
for argument in "$@"; do
    case "$previous" in
        --pipeline-model-parallel-size)
            [ "$argument" = "$stages" ] || fail "the recipes are for $stages stages, not $argument" ;;
    esac
    case "$argument" in
        --pipeline-model-parallel-size=*)
            [ "${{argument#*=}}" = "$stages" ] || fail "the recipes are for $stages stages, not ${{argument#*=}}" ;;
        --use-tp-pp-dp-mapping|--pipeline-model-parallel-layout*|--decoder-first-pipeline-num-layers*\\
        |--decoder-last-pipeline-num-layers*|--account-for-embedding-in-pipeline-split\\
        |--account-for-loss-in-pipeline-split|--num-layers-per-virtual-pipeline-stage*\\
        |--num-virtual-stages-per-pipeline-rank*)
            fail "$argument changes which layers a stage holds; the recipes are for equal stages" ;;
        --te-precision-config-file*)
            fail "leave $argument out: the recipe depends on the rank" ;;
    esac
    previous=$argument
done

[ $((WORLD_SIZE % stages)) -eq 0 ] || fail "$WORLD_SIZE ranks do not divide into $stages stages"
stage=$((RANK / (WORLD_SIZE / stages)))
here=$(cd "$(dirname "${{BASH_SOURCE[0]}}")" && pwd)
exec "$@" --te-precision-config-file "$here/te_precision.stage$stage.yaml"
"""


def recipe_path(stage: int | None) -> str:
    """The YAML of a pipeline stage; the only one for None."""
    return "te/te_precision.yaml" if stage is None else f"te/te_precision.stage{stage}.yaml"


def script(stages: int, digest: str) -> str:
    """The wrapper for that many stages. Ranks are in Megatron's default order, tp-cp-ep-dp-pp: stages outermost."""
    return _TEXT.format(stages=stages, digest=digest)


def script_stages(text: str) -> tuple[int, str] | None:
    """The stages and the digest of a wrapper; None if it is not, to the letter, one that `script` writes."""
    found = re.search(r"^# precc contract (\S+)$.*?^stages=(\d+)$", text, re.MULTILINE | re.DOTALL)
    if found is None or script(int(found[2]), found[1]) != text:
        return None
    return int(found[2]), found[1]
