"""The recipe file that a launch line names, against the one that the contract emits.

What counts is what Megatron makes of it: another text is read back, and the tensors that it decides otherwise are
named. NVIDIA's Megatron opens a path; the fork that Miles trains with also takes the text itself, as `base64:…`.
"""

from __future__ import annotations

import os
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence

from precc.backend import COMPILED, CONTRACT_LINE, Unsupported, named_contract
from precc.contract import Contract, Entry
from precc.contract.wording import counted_names
from precc.diagnostics import Diagnostic, error
from precc_te.reading import read_back
from precc_te.stages import SCRIPT, recipe_path, script_stages

CODE = "P511"
RECIPE_FILE = "--te-precision-config-file"
INLINE = "base64:"

Recipes = Mapping[str, str]
"""The emitted artifacts, path → text."""


def check_recipes(
    contract: Contract, emitted: Recipes, named: str | None, words: Sequence[str], environment: Mapping[str, str]
) -> Iterator[Diagnostic]:
    """This compares the file (`named` by the line; None for none) or the wrapper that a line names with `emitted`."""
    wrapper = next((word for word in words if os.path.basename(word) == os.path.basename(SCRIPT)), None)
    if SCRIPT not in emitted:
        yield from _one_file(contract, emitted, named, wrapper)
    elif wrapper is not None:
        yield from _wrapper(contract, emitted, named, wrapper)
    else:
        yield from _one_stage(contract, emitted, named, environment)


def _one_file(contract: Contract, emitted: Recipes, named: str | None, wrapper: str | None) -> Iterator[Diagnostic]:
    needed = f"{RECIPE_FILE} {COMPILED}/{recipe_path(None)}"
    if wrapper is not None:
        message = f"{wrapper} picks a recipe file by pipeline stage; this contract has one for all of them"
        yield error(CODE, message, help=f"leave the wrapper out, and say {needed}")
    elif named is None:
        why = "without it every linear layer runs the engine-wide recipe"
        yield error(CODE, f"{RECIPE_FILE} is missing; the contract needs its recipe file: {why}", help=f"say {needed}")
    else:
        yield from _compared(contract, emitted, {recipe_path(None): named}, f"say {needed}")


def _wrapper(contract: Contract, emitted: Recipes, named: str | None, wrapper: str) -> Iterator[Diagnostic]:
    if named is not None:
        message = f"the line says {RECIPE_FILE} {named}, and {wrapper} adds the one of each stage"
        yield error(CODE, message, help=f"leave {RECIPE_FILE} out")
    beside = {path: os.path.join(os.path.dirname(wrapper), os.path.basename(path)) for path in emitted}
    files = {path: where for path, where in beside.items() if _is_stage(path)}
    help = f"launch through {COMPILED}/{SCRIPT}, as compiled"
    yield from _compared(contract, emitted, {**files, SCRIPT: wrapper}, help)


def _one_stage(
    contract: Contract, emitted: Recipes, named: str | None, environment: Mapping[str, str]
) -> Iterator[Diagnostic]:
    """A line of one rank may name its stage's file itself."""
    stages = sum(map(_is_stage, emitted))
    stage = _stage(environment, stages)
    help = f"launch each rank through {COMPILED}/{SCRIPT}"
    if stage is None or named is None:
        said = f"the line says {RECIPE_FILE} {named}" if named else "the line names no recipe file"
        yield error(CODE, f"{said}; the contract has one for each of {stages} pipeline stages", help=help)
    else:
        yield from _compared(contract, emitted, {recipe_path(stage): named}, help)


def _is_stage(path: str) -> bool:
    return path.startswith("te/te_precision.stage")


def _stage(environment: Mapping[str, str], stages: int) -> int | None:
    """The pipeline stage of a rank, in Megatron's default order: stages outermost. None where no rank is known."""
    rank, world = environment.get("RANK", ""), environment.get("WORLD_SIZE", "")
    if not (rank.isdecimal() and world.isdecimal() and int(world) and int(world) % stages == 0):
        return None
    stage = int(rank) // (int(world) // stages)
    return stage if stage < stages else None


def _compared(contract: Contract, emitted: Recipes, files: Mapping[str, str], help: str) -> Iterator[Diagnostic]:
    """One finding where files (emitted path → what the line names for it) decide otherwise than the emitted ones."""
    texts: dict[str, str] = {}
    for path, named in files.items():
        try:
            texts[path] = _read(named)
            wrong = _of_another(contract, path, texts[path])
        except (OSError, ValueError) as problem:
            why = problem.strerror if isinstance(problem, OSError) else "it is no text"
            wrong = f"cannot be read: {why}; the contract needs its recipes"
        if wrong:
            yield error(CODE, f"{_shown(named)} {wrong}", help=help)
            return
    otherwise = _decided_otherwise(contract, emitted, texts)
    if otherwise:
        yield error(CODE, f"{', '.join(map(_shown, files.values()))}: {otherwise}", help=help)


def _shown(named: str) -> str:
    return f"{named[: len(INLINE) + 12]}…" if named.startswith(INLINE) else named


def _of_another(contract: Contract, path: str, text: str) -> str:
    """What is wrong with the contract that a file names. A recipe file without comments names none."""
    wrapper = script_stages(text)
    digest = wrapper[1] if wrapper else named_contract(text)
    if digest and digest != contract.digest:
        return f"belongs to contract {digest[:12]}; this is {contract.digest[:12]}"
    return "is not the script that was compiled" if path == SCRIPT and wrapper is None else ""


def _decided_otherwise(contract: Contract, emitted: Recipes, texts: Mapping[str, str]) -> str:
    """The tensors that Megatron would run otherwise by these files than by the emitted ones."""
    line = f"{CONTRACT_LINE}{contract.digest}\n"
    given = {path: text if CONTRACT_LINE in text else line + text for path, text in texts.items()}
    try:
        readings = read_back(contract, {**emitted, **given})
    except Unsupported as refusal:
        return refusal.findings[0].message
    apart: dict[tuple[object, object], list[Entry]] = {}
    for entry, found, wanted in zip(contract.entries, readings, read_back(contract, emitted), strict=True):
        if found.decision != wanted.decision:
            apart.setdefault((found.decision, wanted.decision), []).append(entry)
    said = (f"{counted_names(entries)} would run as {a}; the contract says {b}" for (a, b), entries in apart.items())
    return "; ".join(said)


def _read(named: str) -> str:
    if named.startswith(INLINE):
        return b64decode(named.removeprefix(INLINE), validate=True).decode()
    with open(named, encoding="utf-8") as file:
        return file.read()
