"""The page's two routes, in the form of vLLM's plugins for HTTP routes.

``/spec`` is a static file that contains no data of the server. ``/spec/data`` is guarded by the
server's API key, if it has one: vLLM itself guards only the paths of its models.
"""

from __future__ import annotations

import time
from argparse import Namespace
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse
from vllm import envs
from vllm.v1.metrics.prometheus import get_prometheus_registry

from vllm_ascend_spec.config.collect import collecting_of
from vllm_ascend_spec.config.resolved import speculation_of
from vllm_ascend_spec.page.data import figures
from vllm_ascend_spec.upstream.server import AuthenticationMiddleware

PATH = "/spec"
DATA = f"{PATH}/data"
FILE = Path(__file__).with_name("spec.html")
HEADERS = {
    "Cache-Control": "no-store",
    # The page is self-contained and asks no other server.
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def keys_of(args: Namespace) -> list[str]:
    """Return the API keys of a server, by the rule of vLLM's own middleware."""
    return [key for key in (args.api_key or [envs.VLLM_API_KEY]) if key]


class SpecPage:
    """Implements ``vllm/plugins/endpoint_plugins/interface.py:EndpointPlugin``."""

    name = "ascend_spec_page"
    required_tasks = ("generate",)

    def attach_router(self, app: FastAPI) -> None:
        """Add the routes to a server's application."""
        html = FILE.read_text(encoding="utf-8")
        keys = keys_of(app.state.args)
        guard = AuthenticationMiddleware(app, keys) if keys else None

        @app.get(PATH, include_in_schema=False)
        def page() -> HTMLResponse:
            return HTMLResponse(html, headers=HEADERS)

        # Not async, so that requests are still served while the metrics are read.
        @app.get(DATA, include_in_schema=False)
        def data(request: Request) -> JSONResponse:
            if guard is not None and not guard.verify_token(request.headers):
                refused = {**HEADERS, "WWW-Authenticate": "Bearer"}
                return JSONResponse({"error": "Unauthorized"}, status_code=401, headers=refused)
            read = figures(get_prometheus_registry().collect())
            about = app.state.spec_page
            return JSONResponse({"time": time.time(), **about, "figures": read}, headers=HEADERS)

    async def init_state(self, engine_client: Any, state: Any, args: Namespace) -> None:
        """Store what does not change; vLLM calls this once the engine exists."""
        config = engine_client.vllm_config
        speculation, collecting = speculation_of(config), collecting_of(config.additional_config)
        state.spec_page = {
            "model": (args.served_model_name or [Path(args.model).name])[0],
            "speculation": {
                "method": speculation.method,
                "max_k": speculation.max_k,
                "rule": speculation.rule,
                "lossless": speculation.is_lossless,
                "device": speculation.device,
            },
            # Where exactly is in the log: who may see the page need not know the server's folders.
            "collecting": collecting
            and {
                "folder": collecting.folder.name,
                "rate": collecting.rate,
                "max_bytes": collecting.max_bytes,
                "text": collecting.has_text,
            },
        }
