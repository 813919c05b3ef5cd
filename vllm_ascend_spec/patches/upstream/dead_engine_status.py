"""A server whose engine has died ends with a status that says so.

Why: vLLM then stops its HTTP server as if it had been asked to, and ``vllm serve`` ends with status
0 (vllm/entrypoints/launchers/launcher.py:serve_http). A supervisor that restarts on failure, such
as systemd or Kubernetes with ``restartPolicy: OnFailure``, does not restart it.
How: if the HTTP server has ended, the engine has died, and nobody had asked the engine to stop
(a signal counts as asking), the process logs one line and ends with status 1.
Until: vLLM does this itself. 0.31 to 0.33 do not.
"""

from __future__ import annotations

import functools
import logging
from typing import Any

from vllm_ascend_spec.log import log_once
from vllm_ascend_spec.patches.patching import Patches

STATUS = 1

_patches = Patches()
revert = _patches.revert


def apply() -> None:
    """Install the patch once."""
    if _patches:
        return
    from vllm_ascend_spec.upstream.api_server import entry

    stock = entry.serve_http

    @functools.wraps(stock)
    async def serve_http(app: Any, *args: Any, **kwargs: Any) -> Any:
        engine = app.state.engine_client
        if engine is None:
            return await stock(app, *args, **kwargs)
        asked = _watch_shutdown(engine)
        ended = await stock(app, *args, **kwargs)
        if engine.errored and not asked:
            ended.close()
            log_once(logging.ERROR, f"The engine has died; the server ends with status {STATUS}.")
            raise SystemExit(STATUS)
        return ended

    _patches.set(entry, "serve_http", serve_http)


def _watch_shutdown(engine: Any) -> list[bool]:
    """Return a list that gets an entry when someone asks the engine to stop."""
    asked: list[bool] = []
    stock = engine.shutdown

    @functools.wraps(stock)
    def shutdown(*args: Any, **kwargs: Any) -> Any:
        asked.append(True)
        return stock(*args, **kwargs)

    engine.shutdown = shutdown
    return asked
