"""One engine in a process of its own: its answers, and tokens per step.

``python -m tests.versions.cell`` reads ``{"method": …, "mode": …}`` from stdin and writes what came
of it to the file ``output``, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.ascend.targets.mla import MLA_ENGINE
from tests.engines import ENGINE, token_ids, with_fixed_length
from tests.zoo import EVERY, ZOO, target_of

PROMPTS, TOKENS = 16, 64
DEEPSEEK = "deepseek_mtp"
# Of the newest release alone, until other versions are run again.
UNRECORDED = ("dspark",)
# Beside those of the zoo's other target: MTP layers with multi-head latent attention.
SPECS: dict[str, dict[str, Any]] = {
    **{name: spec for name, spec in EVERY.items() if name not in UNRECORDED},
    DEEPSEEK: {
        "method": "mtp",
        "model": str(ZOO / "target-deepseek"),
        "num_speculative_tokens": 3,
    },
}
NPU_MODES: dict[str, dict[str, Any]] = {
    "eager": {"enforce_eager": True},
    "graphs": {"compilation_config": {"cudagraph_mode": "FULL_DECODE_ONLY"}},
}
CPU_MODES: dict[str, dict[str, Any]] = {
    "eager": {"enforce_eager": True},
    "compiled": {"enforce_eager": False},
}


def arguments(method: str | None, target: str, mode: str, *, on_npu: bool) -> dict[str, Any]:
    """Return the engine's arguments.

    Args:
        method: a key of :data:`SPECS`; None for no speculation.
        target: the method whose target it is.
        mode: a key of :data:`NPU_MODES` or :data:`CPU_MODES`.
        on_npu: whether it runs on the simulated NPU.
    """
    modes = NPU_MODES if on_npu else CPU_MODES
    given = {**ENGINE, "model": target_of(SPECS[target]), **modes[mode]}
    given["kv_cache_memory_bytes"] = (64 if on_npu else 128) << 20
    if on_npu:
        given |= {"max_num_batched_tokens": 512, "async_scheduling": False}
        given |= MLA_ENGINE if target == DEEPSEEK else {}
    if method is None:
        return given
    return with_fixed_length(given) | {"speculative_config": dict(SPECS[method])}


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Return the answers of one engine, ``[prompts][tokens]``, and its tokens per step."""
    from vllm import LLM, SamplingParams

    texts = json.loads((ZOO / "prompts.json").read_text())[:PROMPTS]
    llm = LLM(**arguments(job["method"], job["target"], job["mode"], on_npu=job["on_npu"]))
    asked = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True)
    outputs = llm.generate(texts, asked, use_tqdm=False)
    found: dict[str, Any] = {"tokens": token_ids([output.outputs[0] for output in outputs])}
    if job["method"] is not None:
        counted = {metric.name: getattr(metric, "value", 0) for metric in llm.get_metrics()}
        drafts = counted["vllm:spec_decode_num_drafts"]
        accepted = counted["vllm:spec_decode_num_accepted_tokens"]
        found["tokens_per_step"] = round(1 + accepted / drafts, 2)
    return found


if __name__ == "__main__":
    job = json.load(sys.stdin)
    Path(job["output"]).write_text(json.dumps(run(job)))
    # Ends of engines and of a simulated NPU need not be waited for.
    sys.stdout.flush()
    os._exit(0)
