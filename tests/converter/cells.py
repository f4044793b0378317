"""Every ready policy on a small checkpoint of every family: converted once, and what each loader makes of it."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy
import torch
from converter.checkpoints import Weights, load_checkpoint, names_of, stored_bytes, write_checkpoint, write_shards
from converter.conversions import PARTS, Case, expected, named, plain
from converter.decoding import decoded, outer_fault
from converter.loading import read
from proof.subjects import LAYERS, MODELS, Subject

from precc.cli import main
from precc.contract import Contract
from precc.formats import Quantization
from precc.graph.reading import read_model
from precc.graph.shrinking import shrink
from precc.quant import dequantize
from precc.syntax.words import Role
from precc_converter.written import written
from precc_sglang.environment import environment, variables_of
from precc_sglang.methods import choice_of
from precc_sglang.server import arguments
from precc_sglang.upstream.comparing import NORMS, PLACEHOLDER, SHARED_WITH_TARGET, WIDER
from precc_sglang.upstream.expected import Holder, filled, holders
from precc_sglang.upstream.process import Worker
from precc_sglang.upstream.wire import Cast, Job, Loaded, Stop
from precc_sglang.upstream.worker import UNSTORED
from precc_sglang.versions import capability

SOURCE_KEPT = {"copy", "keep_fp8_as_mxfp8"}
"""What is done to a quantized source whose numbers stay; it need not be what its own numbers would be quantized to."""


@dataclass
class Converted:
    """A conversion, and who can load it; each is asked once."""

    case: Case
    folder: Path
    server: Worker
    reader: Executor

    @cached_property
    def contract(self) -> Contract:
        return self.case.contract

    @cached_property
    def weights(self) -> Weights:
        return load_checkpoint(self.folder)

    @cached_property
    def config(self) -> dict[str, Any]:
        shown: dict[str, Any] = json.loads((self.folder / "config.json").read_text())
        return shown

    @property
    def method(self) -> str | None:
        """The word by which a loader chooses."""
        quantization: dict[str, Any] = self.config.get("quantization_config") or {}
        return quantization.get("quant_method")

    @property
    def formats(self) -> set[str]:
        """The formats of what is quantized."""
        weights = (entry.decision.weight for entry in self.contract.entries)
        return {weight.format for weight in weights if weight.is_quantized}

    @property
    def in_partial_blocks(self) -> set[str]:
        """The weights in FP8 blocks that 128 does not divide."""
        partial = (e for e in self.contract.entries if e.decision.weight.format == "fp8_block")
        return {name for e in partial if any(size % 128 for size in e.tensor.shape) for name in names_of(e.tensor)}

    def parts(self, name: str, form: str) -> dict[Any, torch.Tensor]:
        """The stored parts of a quantized tensor."""
        return {part: self.weights[beside] for part, beside in _stored_names(name, form).items()}

    # --- SGLang

    @cached_property
    def lost(self) -> list[str]:
        """What SGLang's loaders do not write, do not read or change on its way, beyond what is known of them."""
        loads: list[Loaded] | Stop = self.server.ask("load", self._job)
        assert not isinstance(loads, Stop), loads.words
        read_ = frozenset[str]().union(*(loaded.read for loaded in loads))
        tensors = [(name, entry.tensor) for entry in self.contract.entries for name in names_of(entry.tensor)]
        shared = {name for name, tensor in tensors if tensor.mtp is not None and tensor.role in SHARED_WITH_TARGET}
        norms = {name for name, tensor in tensors if tensor.role is Role.NORM}
        return [
            *(f"{name} is not read" for name in sorted(self.weights.keys() - read_ - shared)),
            *(f"{name} is read" for name in sorted(read_ & shared)),
            *(f"{name} is not written" for loaded in loads for name in loaded.unwritten if not self._is_unstored(name)),
            *(f"{cast} is converted" for loaded in loads for cast in loaded.casts if not _is_harmless(cast, norms)),
        ]

    @cached_property
    def _holders(self) -> list[Holder]:
        choice = choice_of(self.contract)
        assert choice is not None
        return holders(self.contract, choice)

    @cached_property
    def _job(self) -> Job:
        contract, choice = self.contract, choice_of(self.contract)
        assert choice is not None
        wanted = environment(contract)["set"]
        return Job(
            full=str(self.folder),
            small=str(self.folder),
            stored={},
            filled=filled(self._holders),
            variables={name: wanted.get(name) for name in variables_of(contract.rollout)},
            arguments=dict(arguments(contract, choice)),
            capability=capability(contract.rollout),
            draft=any(holder.draft for holder in self._holders),
        )

    @cached_property
    def _of_target(self) -> set[str]:
        """The parameters that a draft model has of the model it drafts for."""
        shared = (h for h in self._holders if {entry.tensor.role for entry in h.entries} <= SHARED_WITH_TARGET)
        return {f"{holder.name}.{word}" for holder in shared if holder.draft for word in holder.parameters}

    def _is_unstored(self, name: str) -> bool:
        """Whether no checkpoint of ours fills a parameter: computed later, the main model's, no static input scale."""
        static = name.endswith("input_scale") and name not in self._job.filled
        return name.endswith(UNSTORED) or static or name in self._of_target

    # --- transformers

    @cached_property
    def read(self) -> dict[str, list[str]] | str:
        """What transformers makes of it, against a BF16 checkpoint of the numbers that it stands for."""
        with TemporaryDirectory() as folder:
            config = {key: value for key, value in self.config.items() if key != "quantization_config"}
            Path(folder, "config.json").write_text(json.dumps(config))
            write_shards(Path(folder), self._numbers(), 1)
            return self.reader.submit(read, self.folder, Path(folder)).result()

    def _numbers(self) -> Weights:
        """Every tensor of the model, what is quantized dequantized and rounded to BF16."""
        made: Weights = {}
        for entry, _, name in named(self.contract):
            spec = entry.decision.weight
            if spec.is_quantized:
                made[name] = dequantize(self.parts(name, spec.format), spec, dtype=torch.bfloat16)
            else:
                made[name] = self.weights[name]
        return made

    # --- the numbers

    @cached_property
    def wrong(self) -> list[str]:
        """What is not as the source's numbers and the contract make it."""
        source = load_checkpoint(self.case.source)
        return [*self._wrong_numbers(source), *self._wrong_outers(source), *self._wrong_bytes(source)]

    def _wrong_numbers(self, source: Weights) -> Iterator[str]:
        """What dequantizes otherwise than by the format's definition, or has a nearer number."""
        for entry, _, name in named(self.contract):
            spec = entry.decision.weight
            if not spec.is_quantized:
                continue
            parts, weight = self.parts(name, spec.format), plain(name, source).double().numpy()
            stored = decoded(spec, parts)
            if not numpy.array_equal(dequantize(parts, spec).numpy(), stored.numbers):
                yield f"{name} dequantizes otherwise"
            if written(entry, self.contract.model).action not in SOURCE_KEPT:
                yield from (f"{name}: {fault}" for fault in stored.faults(weight))
            elif not numpy.array_equal(stored.numbers, weight.astype(numpy.float32)):
                yield f"{name} has other numbers than its source"

    def _wrong_outers(self, source: Weights) -> Iterator[str]:
        """The NVFP4 outer scales that are not those of the largest magnitude of their group."""
        groups: dict[str, list[tuple[str, Quantization]]] = {}
        for entry, group, name in named(self.contract):
            if entry.decision.weight.format == "nvfp4":
                groups.setdefault(group or name, []).append((name, entry.decision.weight))
        for members in groups.values():
            largest = max(float(plain(name, source).double().abs().max()) for name, _ in members)
            for name, spec in members:
                fault = outer_fault(self.parts(name, "nvfp4")["outer_scale"], spec, largest)
                if fault:
                    yield f"{name}: {fault}"

    def _wrong_bytes(self, source: Weights) -> Iterator[str]:
        """What has other bytes than the quantizer makes of the source, or a name that is not wanted."""
        found, wanted = stored_bytes(self.weights), stored_bytes(expected(self.contract, self.case.source))
        yield from (f"{name} is of one side only" for name in sorted(found.keys() ^ wanted.keys()))
        kept = {
            beside
            for entry, _, name in named(self.contract)
            if entry.decision.weight.is_quantized and written(entry, self.contract.model).action in SOURCE_KEPT
            for beside in _stored_names(name, entry.decision.weight.format).values()
        }
        yield from (f"{n} has other bytes" for n in found if n not in kept and found[n] != wanted.get(n))


def _stored_names(name: str, form: str) -> dict[str, str]:
    return {part: f"{name.rpartition('.')[0]}.{word}" for part, word in PARTS[form].items()}


def _is_harmless(cast: Cast, norms: set[str]) -> bool:
    types = cast.stored, cast.held
    return types in WIDER or types == PLACEHOLDER or (types == NORMS and cast.tensor in norms)


@dataclass
class Cells:
    """The conversions so far: policies whose plan and server differ in nothing but the digest share one."""

    root: Path
    server: Worker
    reader: Executor
    _sources: dict[str, Path] = field(default_factory=dict)
    _found: dict[Subject, Converted | str] = field(default_factory=dict)
    _made: dict[object, Converted] = field(default_factory=dict)

    def __getitem__(self, subject: Subject) -> Converted | str:
        """A policy on a family's small checkpoint; or why it does not compile for SGLang."""
        if subject not in self._found:
            self._found[subject] = self._converted(subject)
        return self._found[subject]

    def _converted(self, subject: Subject) -> Converted | str:
        if "sglang" not in subject.targets:
            return f"it is for {', '.join(subject.targets)}"
        source, compiled = self._source(subject.family), self.root / subject.family / subject.policy
        codes = _compile(subject.policy, source, compiled)
        if codes:
            return f"it does not compile for SGLang: {', '.join(codes)}"
        case = Case(source, compiled)
        key = subject.family, _content(case)
        if key not in self._made:
            folder = case.convert(self.root / subject.family / f"{subject.policy}-converted")
            for name in ("server.yaml", "env.sh"):
                shutil.copy(compiled / "sglang" / name, folder)
            self._made[key] = Converted(case, folder, self.server, self.reader)
        return self._made[key]

    def _source(self, family: str) -> Path:
        if family not in self._sources:
            config = shrink(read_model(MODELS[family]), layers=LAYERS).config
            # A published config.json says `type` alone, and each engine has another `rope_type` for that.
            (config.get("rope_scaling") or {}).pop("rope_type", None)
            power_of_two = (config.get("quantization_config") or {}).get("scale_fmt") == "ue8m0"
            folder = self.root / family / "source"
            self._sources[family] = write_checkpoint(folder, config, power_of_two=power_of_two)
        return self._sources[family]


def _compile(policy: str, source: Path, output: Path) -> list[str]:
    """The codes with which a compile for the server and the converter is refused."""
    said = io.StringIO()
    words = ["compile", policy, "--model", str(source), "-t", "sglang", "-t", "converter", "-o", str(output)]
    with contextlib.redirect_stdout(said):
        status = main([*words, "--output-format", "json"])
    findings = json.loads(said.getvalue())["findings"]
    codes = sorted({finding["code"] for finding in findings if finding["severity"] == "error"})
    assert bool(codes) is bool(status)
    return codes


def _content(case: Case) -> object:
    """What the converter and the server take from a compile, but for the digest."""
    digest = case.contract.digest
    files = sorted((case.compiled / "sglang").iterdir())
    plan = json.loads((case.compiled / "converter/plan.json").read_text())
    return json.dumps(plan["tensors"]), *((file.name, file.read_text().replace(digest, "")) for file in files)
