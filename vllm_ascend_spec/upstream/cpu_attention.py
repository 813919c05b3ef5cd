"""Tell whether vLLM's CPU attention writes keys and values in a separate call (since 0.30)."""

from __future__ import annotations

from vllm_ascend_spec.upstream.ranges import vllm_is

WRITES_APART = vllm_is(">=0.30")
