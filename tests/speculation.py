"""A resolved speculation, and a configuration that carries one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from vllm_ascend_spec.config.resolved import ATTRIBUTE, Speculation
from vllm_ascend_spec.methods.registry import BUILT_IN


def make_speculation(method: str = "eagle", **given: Any) -> Speculation:
    """Return a speculation on the CPU with three drafts, unless told otherwise."""
    values: dict[str, Any] = {
        "device": "cpu",
        "family": "vllm",
        "vllm_method": method,
        "drafter": BUILT_IN[method].drafters["vllm"],
        "num_drafts": 3,
        **given,
    }
    return Speculation(method=method, **values)


def carry(speculation: Speculation, **spec: Any) -> SimpleNamespace:
    """Return a stand-in for vLLM's ``SpeculativeConfig`` that carries a resolved one."""
    return SimpleNamespace(**{ATTRIBUTE: speculation, **spec})
