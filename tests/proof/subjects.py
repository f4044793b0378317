"""What is judged: every ready policy, on a small model of every family."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from precc.backend import available, find_backend
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
}
"""The model of each family whose structure the small one has, sizes as divisible as its own."""

LAYERS = 4
"""The first two and the last two: dense and routed ones, kept in BF16 by policies and not."""


@cache
def small_model(family: str) -> ModelGraph:
    """The graph of a small model with the structure of a well-known one."""
    return shrink(read_model(MODELS[family]), layers=LAYERS).graph


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
    """One policy on one small model: what each target makes of it."""

    policy: str
    family: str

    def __str__(self) -> str:
        return f"{self.policy} on {self.family}"

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets that the policy is for."""
        stated = read_policy(source_of(self.policy))[0].targets
        return stated.names if stated else tuple(sorted(available()))

    def compiled(self, target: str) -> Compilation:
        """The policy compiled for one target alone."""
        return _compiled(self.policy, self.family, target)

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
def _compiled(policy: str, family: str, target: str) -> Compilation:
    return compile_policy(source_of(policy), small_model(family), [find_backend(target)])


def subjects() -> list[Subject]:
    """Every ready policy on every family."""
    return [Subject(policy, family.name) for policy in policies() for family in families()]
