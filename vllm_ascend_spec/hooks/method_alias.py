"""Translate a speculative config into a method and options that vLLM's own config knows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from vllm_ascend_spec.config.draft_sampling import OPTION as SAMPLING
from vllm_ascend_spec.config.draft_tp import SIZE
from vllm_ascend_spec.config.resolved import SpecConfig
from vllm_ascend_spec.config.rules import GREEDY
from vllm_ascend_spec.config.schedule import NAME as SCHEDULE
from vllm_ascend_spec.config.spec_options import with_underscores
from vllm_ascend_spec.config.speculators_format import HeadAsModel

# vLLM refuses a key that one of these flags also gives.
SHORT_FLAGS = ("spec_method", "spec_model", "spec_tokens")
# vLLM's method for a user-defined class.
OWN_CLASS = "custom_class"
# Whether a step is scheduled before the previous one has ended.
AHEAD = "async_scheduling"


def for_vllm(spec: dict[str, Any], speculation: SpecConfig) -> dict[str, Any]:
    """Return ``spec`` with a method that vLLM knows, and without options that vLLM lacks."""
    from dataclasses import fields

    from vllm.config import SpeculativeConfig

    known = {field.name for field in fields(SpeculativeConfig)}
    kept = {name: value for name, value in with_underscores(spec).items() if name in known}
    shown = {**kept, "method": speculation.vllm_method}
    if speculation.has_trees:  # its size need not be written
        shown["num_speculative_tokens"] = speculation.max_k
    # If the option is not given, vLLM drafts greedily.
    if speculation.draft_sample_method != shown.get(SAMPLING, GREEDY):
        shown[SAMPLING] = speculation.draft_sample_method
    if SIZE in shown:  # vLLM refuses 1, which may be resolved to the target's size
        shown[SIZE] = speculation.options.get(SIZE)
    if speculation.schedule is not None:  # another option may have set it
        shown.setdefault(SCHEDULE, [list(row) for row in speculation.schedule])
    is_carried = speculation.vllm_method == OWN_CLASS != speculation.method
    if is_carried and "model" not in shown:
        # vLLM requires the path of the class; without our runner it would load that class.
        shown["model"] = speculation.drafter[0].replace(":", ".")
    return shown


@contextmanager
def speculative_config_for_vllm(
    args: Any, asked: HeadAsModel, speculation: SpecConfig | None
) -> Iterator[None]:
    """Reduce an ``EngineArgs`` to what vLLM knows, and restore it when the context ends.

    Args:
        args: the ``EngineArgs``.
        asked: the speculation that it requests, with the short flags merged in.
        speculation: the result of resolving ``asked``; None without speculation.
    """
    if speculation is None:
        yield
        return
    shown = for_vllm(asked.spec, speculation)
    changes: dict[str, Any] = {}
    if asked.detected is not None or shown != with_underscores(asked.spec):
        changes = {name: None for name in SHORT_FLAGS if hasattr(args, name)}
        changes["speculative_config"] = shown
    if speculation.is_synchronous and getattr(args, AHEAD, False) is None:
        changes[AHEAD] = False  # vLLM does that for its own methods only
    before = {name: getattr(args, name) for name in changes}
    for name, value in changes.items():
        setattr(args, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(args, name, value)
