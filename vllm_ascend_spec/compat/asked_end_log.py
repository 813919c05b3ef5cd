"""A server that is asked to end does not log its engine's end as a failure.

Why: where an engine that was asked to stop has stopped, vLLM's front end cancels the task that
reads its socket, and later the one that waits for outputs. If the second one gets to run between
the two, as on a busy machine, it logs "AsyncLLM output_handler failed." with a traceback that says
EngineDeadError (vllm/v1/engine/async_llm.py:AsyncLLM.shutdown).
How: the client of the engine remembers that it was asked to stop while the engine was alive, and
marks the error that follows; vLLM's logger of that task leaves a marked one out. Requests that
still wait are told of it as before.
Until: vLLM does so itself. 0.31 to 0.33 do not.
"""

from __future__ import annotations

import functools
import logging
from typing import Any

from vllm_ascend_spec.compat.patching import Patches

MARK = "ascend_spec_asked"

_patches = Patches()
revert = _patches.revert


def apply() -> None:
    """Install the mend once."""
    if _patches:
        return
    from vllm.v1.engine import async_llm, core_client
    from vllm.v1.engine.exceptions import EngineDeadError

    stock_shutdown = core_client.MPClient.shutdown
    stock_output = core_client.AsyncMPClient.get_output_async
    stock_filter = async_llm.logger.filter

    @functools.wraps(stock_shutdown)
    def shutdown(self: Any, *args: Any, **kwargs: Any) -> None:
        # What watches the engine calls this, too, once it has noted its death.
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
