"""A server that is asked to end does not log its engine's end as a failure.

Why: after an engine has stopped on request, vLLM's front end cancels the task that reads its
socket, and later the task that waits for outputs. If the second task runs in between, as on a busy
machine, it logs "AsyncLLM output_handler failed." with the traceback of an EngineDeadError
(vllm/v1/engine/async_llm.py:AsyncLLM.shutdown).
How: the engine's client remembers that it was asked to stop while the engine was alive, and marks
the error that follows. The logger of that task drops a marked error. Requests that still wait get
the error as before.
Until: vLLM does this itself. 0.31 to 0.33 do not.
"""

from __future__ import annotations

import functools
import logging
from typing import Any

from vllm_ascend_spec.patches.patching import Patches

MARK = "ascend_spec_asked"

_patches = Patches()
revert = _patches.revert


def apply() -> None:
    """Install the patch once."""
    if _patches:
        return
    from vllm.v1.engine import async_llm, core_client
    from vllm.v1.engine.exceptions import EngineDeadError

    stock_shutdown = core_client.MPClient.shutdown
    stock_output = core_client.AsyncMPClient.get_output_async
    stock_filter = async_llm.logger.filter

    @functools.wraps(stock_shutdown)
    def shutdown(self: Any, *args: Any, **kwargs: Any) -> None:
        # The engine's monitor calls this, too, once it has noted the engine's death.
        if not self.resources.engine_dead:
            setattr(self, MARK, True)
        stock_shutdown(self, *args, **kwargs)

    @functools.wraps(stock_output)
    async def get_output_async(self: Any) -> Any:
        try:
            return await stock_output(self)
        except EngineDeadError as error:
            setattr(error, MARK, getattr(self, MARK, False))
            raise

    @functools.wraps(stock_filter)
    def keep(record: logging.LogRecord) -> Any:
        error = record.exc_info[1] if record.exc_info else None
        return not getattr(error, MARK, False) and stock_filter(record)

    _patches.set(core_client.MPClient, "shutdown", shutdown)
    _patches.set(core_client.AsyncMPClient, "get_output_async", get_output_async)
    _patches.set(async_llm.logger, "filter", keep)
