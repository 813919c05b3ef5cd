"""Let a server show its page, where ``spec_page`` asks for it.

Why: vLLM loads plugins for routes (``vllm.endpoint_plugins``) only where ``VLLM_PLUGINS`` names
them, which would keep every plugin out that it does not name, and warns of each that it did not
load at every start.
How: where vLLM attaches these plugins, ours is attached behind them.
Until: vLLM lets a platform bring routes of its own.
"""

from __future__ import annotations

from typing import Any

from vllm_ascend_spec.compat.patching import Patches
from vllm_ascend_spec.config.page import refuse_page, wants_page

_patches = Patches()
# vLLM's names of what an engine is built for, with which nobody could see the page.
WITHOUT_SERVER = ("LLM_CLASS", "OPENAI_BATCH_RUNNER")


def revert() -> None:
    """Undo the hook."""
    _patches.revert()


def prepare(additional_config: Any, usage_context: Any) -> None:
    """Install the hook once, if an engine's page is asked for.

    Args:
        additional_config: of the engine, as given.
        usage_context: vLLM's ``UsageContext`` of the engine, or None.

    Raises:
        ConfigError: no server runs on this engine.
    """
    if not wants_page(additional_config):
        return
    if getattr(usage_context, "name", None) in WITHOUT_SERVER:
        refuse_page(additional_config)
    if not _patches:
        _apply()


def _apply() -> None:
    from vllm_ascend_spec.upstream.routes import launcher

    stock = launcher.attach_endpoint_plugins

    def attach_endpoint_plugins(app: Any, supported_tasks: Any) -> None:
        stock(app, supported_tasks)
        if not wants_page(app.state.args.additional_config):
            return
        from vllm_ascend_spec.page.routes import SpecPage

        page = SpecPage()
        if set(page.required_tasks) & set(supported_tasks):
            page.attach_router(app)
            app.state.endpoint_plugins = [*app.state.endpoint_plugins, page]

    _patches.set(launcher, "attach_endpoint_plugins", attach_endpoint_plugins)
