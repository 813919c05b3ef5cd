"""Does vLLM's attention on a CPU write keys and values apart from attending? Since 0.30."""

from __future__ import annotations

from vllm_ascend_spec.upstream.ranges import vllm_is

WRITES_APART = vllm_is(">=0.30")
