"""Which results depend on a setting: the table by which a second start may change some."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vllm_ascend_spec.training.output import Output
from vllm_ascend_spec.training.phases.run import PHASES
from vllm_ascend_spec.training.settings import Settings

ANSWERS, STATES, VOCABULARY, FIT, PROOF = PHASES
# The first phase that uses a setting; None if nothing that stays depends on it. Paths are there for
# their contents, which the hashes tell.
FIRST_USED: Mapping[str, str | None] = {
    "target_hash": ANSWERS,
    "prompts_hash": ANSWERS,
    "holdout": ANSWERS,
    "max_tokens": ANSWERS,
    "temperature": ANSWERS,
    "top_p": ANSWERS,
    "top_k": ANSWERS,
    "seed": ANSWERS,
    "max_model_len": ANSWERS,
    "dtype": ANSWERS,
    "hf_overrides": ANSWERS,
    "kv_cache_dtype": ANSWERS,
    "load_format": ANSWERS,
    "quantization": ANSWERS,
    "tokenizer": ANSWERS,
    "layers": STATES,
    "begin_hash": VOCABULARY,
    "draft_vocab_size": VOCABULARY,
    "method": FIT,
    "num_speculative_tokens": FIT,
    "steps": FIT,
    "learning_rate": FIT,
    "nproc_per_node": FIT,
    "library": FIT,
    "tensor_parallel_size": PROOF,
    "enable_expert_parallel": PROOF,
    "limit_mm_per_prompt": PROOF,
    "additional_config": PROOF,
    "compilation_config": PROOF,
    "enforce_eager": PROOF,
    "block_size": PROOF,
    "gpu_memory_utilization": PROOF,
    "kv_cache_memory_bytes": PROOF,
    "max_num_seqs": PROOF,
    "max_num_batched_tokens": PROOF,
    "trust_remote_code": None,
    "checkpoint_minutes": None,
    "model": None,
    "prompts": None,
    "begin_with": None,
    "output": None,
}
# Settings that say how, on the machine of the moment; of no use once the head is there.
WHILE_TRAINING = frozenset({"nproc_per_node"})


def by_name(settings: Settings) -> dict[str, Any]:
    """Return all settings in one level, each by its name in the table."""
    found = asdict(settings)
    nested = {**found.pop("sampling"), **found.pop("engine")}
    return {**found, **nested}


def changed(output: Output, before: Settings, now: Settings) -> Iterator[tuple[str, Any, Any, str]]:
    """Yield name, both values and the first phase of each setting that results depend on."""
    old, new = by_name(before), by_name(now)
    idle = WHILE_TRAINING if output.head.exists() else frozenset[str]()
    for name, phase in FIRST_USED.items():
        if phase is not None and name not in idle and old.get(name) != new.get(name):
            yield name, old.get(name), new.get(name), phase


def costly(output: Output, phase: str) -> Path | None:
    """Return what would be lost if a phase began again and nobody removes lightly, or None."""
    if phase == PROOF:
        return None
    if phase == ANSWERS and _has_answers(output):
        return output.answers
    if phase in (ANSWERS, STATES) and output.states.exists():
        return output.states
    return output.head if output.head.exists() else None


def left_from(output: Output, phase: str) -> dict[str, list[Path]]:
    """Return what a phase and those after it have left, the last phase's first."""
    left = {
        PROOF: (output.report, output.proof),
        FIT: (
            output.head, output.checkpoints, output.begin, output.dataset, output.metrics,
            output.curves,
        ),
        VOCABULARY: (output.vocabulary,),
        STATES: (output.states,),
        ANSWERS: (output.held_out, output.answers),
    }  # fmt: skip
    again = PHASES[PHASES.index(phase) :]
    there = {name: [path for path in left[name] if path.exists()] for name in reversed(again)}
    return {name: paths for name, paths in there.items() if paths}


def _has_answers(output: Output) -> bool:
    """Tell whether there is an answer, not just the line that says how they are made."""
    if not output.answers.exists():
        return False
    with output.answers.open("rb") as file:
        return sum(1 for _ in zip(range(2), file, strict=False)) > 1
