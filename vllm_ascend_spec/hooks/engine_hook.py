"""Give clear errors for ``LLM(...)`` and every other way to build an engine.

Why: vLLM finds a wrong draft while it loads weights, deep in a worker process.
How: ``EngineArgs.create_engine_config`` first runs our checks, which read JSON files only. The
other hooks and the front end's patches are installed with it: some admit requests that our verifier
can serve, one corrects stop strings.
Until: never; this is our own feature, hooked in where vLLM has no hook.
"""

from __future__ import annotations

from typing import Any

from vllm_ascend_spec.errors import AscendSpecError
from vllm_ascend_spec.hooks import (
    collect_hook,
    engine_core,
    keywords_hook,
    page_hook,
    quantized,
    request_hook,
    stats_hook,
)
from vllm_ascend_spec.hooks.attach import confirm, waiting
from vllm_ascend_spec.hooks.method_alias import speculative_config_for_vllm
from vllm_ascend_spec.hooks.preflight import asked_of, resolve_args
from vllm_ascend_spec.patches import registry as patches
from vllm_ascend_spec.patches.patching import Patches

_patches = Patches()


def revert() -> None:
    """Undo the hook."""
    _patches.revert()
    collect_hook.revert()
    engine_core.revert()
    keywords_hook.revert()
    page_hook.revert()
    request_hook.revert()
    stats_hook.revert()
    patches.revert("front_end")


def ours_in(error: Any) -> AscendSpecError | None:
    """Return our error that pydantic has wrapped in one of its own, or None.

    Our platforms check vLLM's configuration while pydantic builds it.
    """
    found = [part.get("ctx", {}).get("error") for part in error.errors(include_url=False)]
    return next((part for part in found if isinstance(part, AscendSpecError)), None)


def apply() -> None:
    """Install the hook once."""
    if _patches:
        return
    from pydantic import ValidationError
    from vllm.engine.arg_utils import EngineArgs

    stock = EngineArgs.create_engine_config

    def create_engine_config(self: Any, *args: Any, **kwargs: Any) -> Any:
        usage = kwargs.get("usage_context", args[0] if args else None)
        page_hook.prepare(self.additional_config, usage)
        quantized.detect(self)
        speculation = resolve_args(self, is_headless=bool(kwargs.get("headless")))
        with waiting(speculation), speculative_config_for_vllm(self, asked_of(self), speculation):
            try:
                config = stock(self, *args, **kwargs)
            except ValidationError as error:
                if (ours := ours_in(error)) is None:
                    raise
                raise ours from None
        if speculation is not None:
            confirm(config, speculation)
        return config

    _patches.set(EngineArgs, "create_engine_config", create_engine_config)
    engine_core.apply()
    keywords_hook.apply()
    stats_hook.apply()
    request_hook.apply()
    patches.apply("front_end")
