"""What vLLM's own config is given of a speculative config: a method and options that it knows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from vllm_ascend_spec.config.draft_sampling import OPTION as SAMPLING
from vllm_ascend_spec.config.draft_split import SIZE
from vllm_ascend_spec.config.head_as_model import Asked
from vllm_ascend_spec.config.preflight import with_underscores
from vllm_ascend_spec.config.resolved import Speculation
from vllm_ascend_spec.config.rules import GREEDY
from vllm_ascend_spec.config.schedule import NAME as SCHEDULE

# vLLM refuses a key that is given by one of these flags, too.
SHORT_FLAGS = ("spec_method", "spec_model", "spec_tokens")
# vLLM's method for a class that it does not know.
OWN_CLASS = "custom_class"
# Whether steps are scheduled before the ones before them have ended.
AHEAD = "async_scheduling"


def for_vllm(spec: dict[str, Any], speculation: Speculation) -> dict[str, Any]:
    """Return ``spec`` with the method's carrier and without the options that vLLM does not have."""
    from dataclasses import fields

    from vllm.config import SpeculativeConfig

    known = {field.name for field in fields(SpeculativeConfig)}
    kept = {name: value for name, value in with_underscores(spec).items() if name in known}
    shown = {**kept, "method": speculation.vllm_method}
    # vLLM's default is the other one.
    if speculation.draft_sample_method != shown.get(SAMPLING, GREEDY):
        shown[SAMPLING] = speculation.draft_sample_method
    if SIZE in shown:  # vLLM refuses 1, which stands for the target's
        shown[SIZE] = speculation.options.get(SIZE)
    if speculation.schedule is not None:  # another option may stand for it
        shown.setdefault(SCHEDULE, [list(row) for row in speculation.schedule])
    is_carried = speculation.vllm_method == OWN_CLASS != speculation.method
    if is_carried and "model" not in shown:
        # vLLM asks for its path, and would load it if ours did not.
        shown["model"] = speculation.drafter[0].replace(":", ".")
    return shown


@contextmanager
def carried(args: Any, asked: Asked, speculation: Speculation | None) -> Iterator[None]:
    """Show vLLM what it knows of an ``EngineArgs`` for a while.

    Args:
        args: the ``EngineArgs``.
        asked: what it asks for, with the short flags merged in.
        speculation: what that was resolved to.
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
        changes[AHEAD] = False  # vLLM knows that of its own methods only
    before = {name: getattr(args, name) for name in changes}
    for name, value in changes.items():
        setattr(args, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(args, name, value)
