"""Clear errors for ``LLM(...)`` and every other way to build an engine.

Why: vLLM finds a wrong draft while it loads weights, deep in a worker process.
How: ``EngineArgs.create_engine_config`` first runs our checks, which read JSON files only, and lets
through the requests that our verifier can serve. Where outputs are processed, stop strings are
mended.
Until: never; this is our own feature, hooked in where vLLM has no hook.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_ascend_spec.compat import spec_sampling_params, stop_string_tokens
from vllm_ascend_spec.compat.patching import Patches

if TYPE_CHECKING:
    from vllm_ascend_spec.config.engine import Engine

_patches = Patches()


def revert() -> None:
    """Undo the hook."""
    _patches.revert()
    spec_sampling_params.revert()
    stop_string_tokens.revert()


def apply() -> None:
    """Install the hook once."""
    if _patches:
        return
    from vllm.engine.arg_utils import EngineArgs

    stock = EngineArgs.create_engine_config

    def create_engine_config(self: Any, *args: Any, **kwargs: Any) -> Any:
        check(self)
        return stock(self, *args, **kwargs)

    _patches.set(EngineArgs, "create_engine_config", create_engine_config)
    spec_sampling_params.apply()
    stop_string_tokens.apply()


def merged_speculative_config(args: Any) -> Any:
    """Return the speculative config of parsed arguments, short flags included."""
    short = {
        "method": getattr(args, "spec_method", None),
        "model": getattr(args, "spec_model", None),
        "num_speculative_tokens": getattr(args, "spec_tokens", None),
    }
    given = {key: value for key, value in short.items() if value is not None}
    spec = args.speculative_config
    if not given or not isinstance(spec, dict | None):
        return spec
    return {**given, **(spec or {})}


def engine_of(args: Any) -> Engine:
    """Return what an ``EngineArgs`` or a parsed command line says about the engine."""
    from vllm_ascend_spec.config.engine import UNKNOWN, Engine, cudagraph_mode_of
    from vllm_ascend_spec.platform.select import detect_device

    mode = cudagraph_mode_of(getattr(args, "compilation_config", None))
    level = getattr(getattr(args, "optimization_level", None), "value", 2)
    # vLLM lowers the mode for some connectors, and at the lower levels of optimization.
    if getattr(args, "kv_transfer_config", None) or (mode is None and level < 2):
        mode = UNKNOWN
    length = getattr(args, "max_model_len", None)
    return Engine(
        device=detect_device(),
        load_format=str(args.load_format),
        tensor_parallel_size=getattr(args, "tensor_parallel_size", 1),
        max_model_len=length if isinstance(length, int) else None,
        enforce_eager=bool(getattr(args, "enforce_eager", False)),
        cudagraph_mode=mode,
    )


def check(args: Any) -> None:
    """Run our checks on an ``EngineArgs`` or a parsed command line."""
    from vllm_ascend_spec.config.additional import section_of
    from vllm_ascend_spec.config.preflight import check_engine

    engine = engine_of(args)
    check_engine(
        getattr(args, "model_tag", None) or args.model,
        merged_speculative_config(args),
        args.additional_config,
        engine,
    )
    if (backend := section_of(args.additional_config).get("verify_backend")) is not None:
        from vllm_ascend_spec.verification.backend import require_backend

        require_backend(backend, engine.device or "cpu")
