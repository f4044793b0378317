"""The ready policies, and which of them compiles for which model family: compiled, not claimed."""

from __future__ import annotations

from functools import cache

from generator.tables import table
from precc.backend import find_backend, standard_targets
from precc.diagnostics import Diagnostic
from precc.front import read_policy
from precc.graph.reading import read_model
from precc.pipeline import Compilation, Settings, compile_policy
from precc.resolve.extends import shipped_policies
from precc.source import SourceFile

MODELS = {
    "Llama": "llama-3.1-8b",
    "Qwen2": "qwen2.5-7b",
    "Qwen3": "qwen3-8b",
    "Qwen3 MoE": "qwen3-30b-a3b",
    "Mixtral": "mixtral-8x7b",
    "DeepSeek-V2": "deepseek-v2-lite",
    "DeepSeek-V3": "deepseek-v3",
    "DeepSeek-V3.2": "deepseek-v3.2",
    "Kimi-K2": "kimi-k2",
    "GLM-4.x MoE": "glm-4.5-air",
    "Qwen3.5 MoE": "qwen3.5-35b-a3b",
    "Qwen3-VL MoE": "qwen3-vl-30b-a3b",
    "gpt-oss": "gpt-oss-20b-bf16",
    "Llama-4": "llama-4-scout",
    "Gemma-3": "gemma-3-27b",
}
"""Models of most kinds; `docs/verification.md` has every family, as small models."""


@cache
def sources() -> dict[str, SourceFile]:
    """The ready policies by name."""
    return {
        path.stem: SourceFile(f"policies/{path.name}", path.read_text(encoding="utf-8"))
        for path in sorted(shipped_policies().glob("*.prec"))
    }


def targets_of(source: SourceFile) -> tuple[str, ...]:
    """The targets that a policy is for."""
    stated = read_policy(source)[0].targets
    return stated.names if stated else standard_targets()


@cache
def compiled(name: str, model: str) -> Compilation:
    """A policy on a model, for all targets that it is for."""
    source = sources()[name]
    backends = [find_backend(target) for target in targets_of(source)]
    return compile_policy(source, read_model(model), backends, Settings(complete=True))


def errors(name: str, model: str) -> tuple[Diagnostic, ...]:
    """Why a policy does not compile for a model; nothing if it does."""
    return tuple(finding for finding in compiled(name, model).findings if finding.is_error)


def ready() -> str:
    """What each policy is, by the comment that it begins with."""
    rows = []
    for name, source in sources().items():
        about = source.line(1).removeprefix("# ")
        rows.append((f"[`{name}`](../policies/{name}.prec)", about, ", ".join(targets_of(source))))
    return table(("policy", "about", "targets"), rows)


def matrix() -> str:
    """Families by policies: yes, or the codes of the refusal."""
    rows = [(f"{family}<br>`{model}`", *(_cell(name, model) for name in sources())) for family, model in MODELS.items()]
    return table(("model", *(f"`{name}`" for name in sources())), rows)


def _cell(name: str, model: str) -> str:
    codes = sorted({finding.code for finding in errors(name, model)})
    if codes:
        return ", ".join(f"[{code}](diagnostics/{code}.md)" for code in codes)
    binding = compiled(name, model).binding
    return "yes" if name == "bf16" or (binding and any(binding.contract.quantized())) else "all BF16"


def refusals() -> str:
    """Each refusal once, with the policies and the model that it is about."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for model in MODELS.values():
        for name in sources():
            for finding in errors(name, model):
                said = f"{finding.message}. {_help(finding)}"
                found.setdefault((model, finding.code, said), []).append(f"`{name}`")
    return "".join(
        f"- `{model}`, {code}: {said} ({', '.join(dict.fromkeys(names))})\n"
        for (model, code, said), names in found.items()
    )


def _help(finding: Diagnostic) -> str:
    return f"What would work: {finding.help}." if finding.help else ""
