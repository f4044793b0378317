"""`server.yaml` as a server takes it: every argument is one that precc writes, or one that changes no number.

What precc writes is compared: the formats and backends tensor by tensor, the layout and the digest here. The rest is
free: `HARMLESS` arguments may stand there with any value, so may the step in front of the digest, and
`disable-shared-experts-fusion` where nothing would be folded.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from precc.contract import RolloutLayout
from precc_sglang.paths import SERVER_PATH
from precc_sglang.refusal import unreadable
from precc_sglang.server import PRECISION, UNFUSED, layout
from precc_sglang.versions import RELEASES, Release, release_of

WRITTEN: Mapping[str, type] = {
    "dtype": str,
    "kv-cache-dtype": str,
    "quantization": str,
    "moe-runner-backend": str,
    "fp8-gemm-backend": str,
    UNFUSED: bool,
    "weight-version": str,
    **dict.fromkeys(("tp-size", "pp-size", "ep-size"), int),
    **{release.attention_dp: int for release in RELEASES.values()},
    **{release.attention_dp_switch: bool for release in RELEASES.values() if release.attention_dp_switch},
}
"""What precc writes, by SGLang's long names, with the type of each value; not all of it for every version."""

_HARMLESS = """
    admin-api-key api-key base-gpu-id chat-template chunked-prefill-size completion-template context-length
    crash-dump-folder decode-log-interval delete-ckpt-after-loading disable-radix-cache dist-init-addr dist-timeout
    download-dir enable-cache-report enable-memory-saver enable-metrics enable-request-time-stats-logging
    enable-weights-cpu-backup gpu-id-step host log-level log-level-http log-requests log-requests-level
    max-prefill-tokens max-queued-requests max-running-requests max-total-tokens mem-fraction-static model-path
    nccl-port nnodes node-rank numa-node port random-seed reasoning-parser revision schedule-conservativeness
    schedule-policy served-model-name show-time-cost skip-server-warmup sleep-on-idle stream-interval tokenizer-mode
    tokenizer-path tokenizer-worker-num tool-call-parser trust-remote-code watchdog-timeout
"""
HARMLESS = frozenset(_HARMLESS.split())
"""Where a server listens, what it logs, how it schedules and how much memory it takes: no format and no rounding."""

FORBIDDEN: Mapping[str, str] = {
    "enable-fp32-lm-head": "the LM head would multiply in FP32",
    "enable-tf32-matmul": "FP32 products would be rounded to TF32",
    "enable-w4a4-mxfp4-megamoe": "experts would run in MXFP4",
    "enable-waterfill": "it switches the fusion of shared experts on again",
    "enforce-shared-experts-fusion": "shared experts would take the routed experts' method",
    PRECISION: "it chooses the format of expert inputs",
    "fp4-gemm-backend": "Marlin among its choices leaves NVFP4 inputs unquantized",
    "json-model-override-args": "it can replace the quantization config",
    "load-format": "some loaders quantize again",
    "modelopt-quant": "the checkpoint would be quantized again while loading",
    "prefill-kv-cache-dequant-dtype": "it chooses the format in which prefill reads the KV cache",
    "quantization-param-path": "the scales of the KV cache would come from another file",
    "quantize-and-serve": "the checkpoint would be quantized again while loading",
    "rl-on-policy-target": "it chooses kernels and dtypes of its own",
    "rl-quant-profile": "it scales weights that arrive by a profile of its own",
    "speculative-draft-kv-cache-dtype": "the draft model's KV cache would have another format",
    "speculative-draft-model-quantization": "the draft model would be read by another method",
    "speculative-moe-runner-backend": "the draft model's experts would run in other kernels",
}
"""Arguments of SGLang that decide precision beside the contract, each with what it does."""

FORBIDDEN_ONCE: Mapping[str, str] = {"torchao-config": "weights would be quantized again after loading"}
"""The same of arguments that only older versions have."""


def check_arguments(arguments: Mapping[Any, Any], rollout: RolloutLayout, also: Container[str] = ()) -> None:
    """This refuses what precc would not have written (P502). Raises Unsupported.

    `also` are arguments that belong to the config beside them, and to no other.
    """
    sizes = _sizes(release_of(rollout))
    for name, value in arguments.items():
        if name in WRITTEN and (name in sizes or name not in _ALL_SIZES):
            if type(value) is not WRITTEN[name]:
                raise unreadable(f"{SERVER_PATH}: `{name}: {value}` is no value of that argument", "compile again")
        elif name not in HARMLESS and name not in also:
            why = {**FORBIDDEN, **FORBIDDEN_ONCE}.get(
                name, "precc neither writes it nor knows that it changes no number"
            )
            raise unreadable(f"{SERVER_PATH}: `{name}` is no argument of this contract: {why}", f"leave `{name}` out")
    wanted = dict(layout(rollout))
    for name in sizes:
        if arguments.get(name) != wanted.get(name):
            raise unreadable(
                f"{SERVER_PATH} {_size(name, arguments)}; the contract's layout {_size(name, wanted)}",
                "state the layout in the `rollout:` line of the policy, and compile again",
            )


def _sizes(release: Release) -> tuple[str, ...]:
    """The arguments of a version that state a layout."""
    names = ("tp-size", "pp-size", "ep-size", release.attention_dp, release.attention_dp_switch)
    return tuple(filter(None, names))


_ALL_SIZES = frozenset(name for release in RELEASES.values() for name in _sizes(release))


def _size(name: str, sizes: Mapping[Any, Any]) -> str:
    return f"has {name} {sizes[name]}" if name in sizes else f"states no {name}"
