"""A resolved speculation, and a configuration that carries one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from vllm_ascend_spec.config.resolved import ATTRIBUTE, SpecConfig
from vllm_ascend_spec.methods.registry import BUILT_IN


def make_speculation(method: str = "eagle", **given: Any) -> SpecConfig:
    """Return a speculation on the CPU with three drafts, unless told otherwise."""
    values: dict[str, Any] = {
        "device": "cpu",
        "family": "vllm",
        "vllm_method": method,
        "drafter": BUILT_IN[method].drafters["vllm"],
        "max_k": 3,
        **given,
    }
    return SpecConfig(method=method, **values)


def carry(speculation: SpecConfig, **spec: Any) -> SimpleNamespace:
    """Return a fake for vLLM's ``SpeculativeConfig`` that carries a resolved one."""
    return SimpleNamespace(**{ATTRIBUTE: speculation, **spec})
