"""What is judged: every ready policy, on a small model of every family."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from precc.backend import find_backend, standard_targets
from precc.contract import Contract
from precc.diagnostics import Diagnostic
from precc.front import read_policy
from precc.graph.families import families
from precc.graph.model import ModelGraph
from precc.graph.reading import read_model
from precc.graph.shrinking import shrink
from precc.pipeline import Compilation, compile_policy
from precc.resolve.extends import shipped_policies
from precc.source import SourceFile

MODELS: dict[str, str] = {
    "llama": "llama-3.1-8b",
    "qwen2": "qwen2.5-7b",
    "qwen3": "qwen3-8b",
    "qwen3_moe": "qwen3-30b-a3b",
    "mixtral": "mixtral-8x7b",
    "deepseek_v2": "deepseek-v2-lite",
    "deepseek_v3": "deepseek-v3",
    "deepseek_v32": "deepseek-v3.2",
    "glm4_moe": "glm-4.5",
    "gpt_oss": "gpt-oss-20b-bf16",
    "llama4": "llama-4-maverick",
    "gemma3_text": "gemma-3-1b",
    "gemma3": "gemma-3-27b",
    "gemma4": "gemma-4-26b-a4b",
    "qwen3_next": "qwen3-next-80b-a3b",
    "qwen3_5": "qwen3.5-27b",
    "qwen3_5_moe": "qwen3.5-35b-a3b",
    "qwen3_vl_moe": "qwen3-vl-30b-a3b",
    "glm_moe_dsa": "glm-5",
    "kimi_k25": "kimi-k2.5",
    "deepseek_v4": "deepseek-v4-flash",
    "minimax_m2": "minimax-m2",
    "nemotron_h": "nemotron-3-super-120b-a12b",
    "minimax_m3": "minimax-m3",
    "mimo_v2": "mimo-v2-flash",
    "kimi_k3": "kimi-k3",
    "step3p7": "step-3.7-flash",
}
"""The model of each family whose structure the small one has, sizes as divisible as its own."""

ONE_A_FORMAT = ("nvfp4_rl", "mxfp8_e2e", "int4_w4a16")
IN_FULL = tuple(MODELS)[: tuple(MODELS).index("glm4_moe") + 1]
"""The families that every policy is tried on where a trial is dear; the others have one policy for each format."""

LAYERS = 4
"""The first two and the last two: dense and routed ones, kept in BF16 by policies and not."""


@cache
def full_model(family: str) -> ModelGraph:
    """The graph of a well-known model."""
    return read_model(MODELS[family])


@cache
def small_model(family: str) -> ModelGraph:
    """The graph of a small model with the structure of a well-known one."""
    return shrink(full_model(family), layers=LAYERS).graph


OWN: dict[str, str] = {
    "two_backward_modes": """\
@routed_experts: nvfp4 per_token, backward high_precision
@routed_experts in layers[2]: backward dequantized
(@mtp): mxfp8, backward dequantized
kv_b_proj in @mtp: bf16
train: megatron_core=0.16.1
""",
    "recipes_of_two_stages": """\
default: mxfp8, backward high_precision
layers[1]: bf16
o_proj in layers[2]: bf16
train: pp=2
""",
}
"""What no ready policy has: recipe factories, a quantized MTP layer; recipes of single layers, for each stage."""


@cache
def policies() -> dict[str, SourceFile]:
    """The ready policies by name."""
    found = sorted(shipped_policies().glob("*.prec"))
    return {path.stem: SourceFile(f"policies/{path.name}", path.read_text(encoding="utf-8")) for path in found}


def source_of(policy: str) -> SourceFile:
    """A ready policy, or one of those here."""
    return policies().get(policy) or SourceFile(f"{policy}.prec", OWN[policy])


@dataclass(frozen=True)
class Subject:
    """One policy on one model, a small one unless it is `full`: what each target makes of it."""

    policy: str
    family: str
    full: bool = False

    def __str__(self) -> str:
        return f"{self.policy} on {self.family}"

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets that the policy is for."""
        stated = read_policy(source_of(self.policy))[0].targets
        return stated.names if stated else standard_targets()

    def compiled(self, target: str) -> Compilation:
        """The policy compiled for one target alone."""
        return _compiled(self, target)

    def refusals(self, target: str) -> tuple[Diagnostic, ...]:
        """Why it does not compile for a target."""
        return tuple(finding for finding in self.compiled(target).findings if finding.is_error)

    def contract(self, target: str) -> Contract:
        """What is decided; alike for every target."""
        binding = self.compiled(target).binding
        assert binding is not None
        return binding.contract

    @property
    def artifacts(self) -> dict[str, str]:
        """What all targets that can write (path → text)."""
        emissions = [emission for target in self.targets for emission in self.compiled(target).emissions]
        return {artifact.path: artifact.text for emission in emissions for artifact in emission.artifacts}


@cache
def _compiled(subject: Subject, target: str) -> Compilation:
    model = full_model(subject.family) if subject.full else small_model(subject.family)
    return compile_policy(source_of(subject.policy), model, [find_backend(target)])


def subjects(full: bool = False) -> list[Subject]:
    """Every ready policy on every family."""
    return [Subject(policy, family.name, full) for policy in policies() for family in families()]


def in_full() -> list[Subject]:
    """Every ready policy on the families that are tried in full."""
    return [subject for subject in subjects() if subject.family in IN_FULL]


def chosen() -> list[Subject]:
    """The same, and one policy for each format on the other families."""
    return [subject for subject in subjects() if subject.family in IN_FULL or subject.policy in ONE_A_FORMAT]
