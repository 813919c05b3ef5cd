"""Where vLLM attaches plugins' routes to its HTTP server; 0.23 has no such place."""

from __future__ import annotations

from typing import Any

from vllm_ascend_spec.upstream.ranges import vllm_is

if vllm_is(">=0.30"):
    from vllm.entrypoints.launchers import app as launcher
else:
    launcher: Any = None  # type: ignore[no-redef]
