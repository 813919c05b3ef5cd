"""The mends that the worker applies, by the moment they are needed; each is a module here."""

from __future__ import annotations

import importlib

# Mends of the front end (the command line, the request checks) are applied by plugin.py and
# platform/, because they must come before any engine exists.
STAGES: dict[str, tuple[str, ...]] = {
    "before_runner": (
        "spec_logits_processors",
        "allowed_token_mask",
        "thinking_budget_state",
    ),
    "cpu": ("cpu_generator_rewind",),
    "cpu_kernels": (
        "cpu_rejection_kernels",
        "cpu_eagle_step_kernel",
        "cpu_expand_kernel",
    ),
    "npu": (
        "npu_draft_model_graph",
        "npu_draft_model_padding",
        "npu_draft_model_lengths",
        "npu_generator_rewind",
        "npu_logprobs_mode",
    ),
}


def apply(stage: str) -> None:
    """Apply the mends of ``stage``; applying twice changes nothing."""
    for name in STAGES[stage]:
        importlib.import_module(f"vllm_ascend_spec.compat.{name}").apply()
