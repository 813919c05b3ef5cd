"""The module that starts vLLM's HTTP server; not in ``server.py``, as it is slow to import."""

from __future__ import annotations

from vllm_ascend_spec.upstream.ranges import vllm_is

if vllm_is(">=0.30"):
    from vllm.entrypoints.launchers.api_server import entry
else:
    from vllm.entrypoints.openai import api_server as entry

__all__ = ["entry"]
