"""Let a server show its page if ``spec_page`` asks for it.

Why: vLLM loads plugins for routes (``vllm.endpoint_plugins``) only if ``VLLM_PLUGINS`` names them.
Setting it would keep out every plugin that it does not name; without it, vLLM warns at every start
of each plugin that it did not load.
How: after vLLM has attached these plugins, ours is attached.
Until: vLLM lets a platform add routes of its own.
"""

from __future__ import annotations

from typing import Any

from vllm_ascend_spec.config.page import refuse_page, wants_page
from vllm_ascend_spec.patches.patching import Patches

_patches = Patches()
# vLLM's usage contexts without a server, where nobody could see the page.
WITHOUT_SERVER = ("LLM_CLASS", "OPENAI_BATCH_RUNNER")


def revert() -> None:
    """Undo the hook."""
    _patches.revert()


def prepare(additional_config: Any, usage_context: Any) -> None:
    """Install the hook once, if an engine's page is requested.

    Args:
        additional_config: the engine's ``additional_config``, as given.
        usage_context: vLLM's ``UsageContext`` of the engine, or None.

    Raises:
        ConfigError: a page is requested, and this engine has no server.
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
