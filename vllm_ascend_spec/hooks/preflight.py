"""Check a command line or an ``LLM()`` call before anything expensive starts.

``check``, ``vllm serve`` and ``LLM()`` all call :func:`examine`, so that ``check`` reports exactly
what the others do.
"""

from __future__ import annotations

from typing import Any, TypeGuard

from vllm_ascend_spec.config.detect import asked_for
from vllm_ascend_spec.config.engine import (
    UNKNOWN,
    EngineOptions,
    attention_backend_of,
    capture_sizes_of,
    cudagraph_mode_of,
    is_compiled,
    kv_connector_of,
)
from vllm_ascend_spec.config.examine import NOTHING
from vllm_ascend_spec.config.examine import examine as examine_config
from vllm_ascend_spec.config.problems import Examined, Problems
from vllm_ascend_spec.config.resolved import SpecConfig
from vllm_ascend_spec.config.speculators_format import HeadAsModel
from vllm_ascend_spec.devices.select import find_device
from vllm_ascend_spec.hooks import multimodal, quantized
from vllm_ascend_spec.hooks.writable_dirs import check_collect_folder, check_folders
from vllm_ascend_spec.methods.registry import all_methods


def resolve_args(args: Any, *, is_headless: bool = False) -> SpecConfig | None:
    """Check an ``EngineArgs`` or a parsed command line, and resolve its speculation.

    Args:
        args: what was asked for.
        is_headless: whether this process has no front end, if ``args`` does not say so.

    Raises:
        AscendSpecError: the first problem; a ConfigError names the option, its value and what is
            valid.
    """
    return examine_args(args, is_headless=is_headless).resolved()


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


def engine_of(args: Any) -> EngineOptions:
    """Return what an ``EngineArgs`` or a parsed command line says about the engine."""
    mode = cudagraph_mode_of(getattr(args, "compilation_config", None))
    level = getattr(getattr(args, "optimization_level", None), "value", 2)
    # vLLM downgrades the mode for some connectors, and at lower optimization levels.
    transfer = getattr(args, "kv_transfer_config", None)
    if transfer or (mode is None and level < 2):
        mode = UNKNOWN
    length = getattr(args, "max_model_len", None)
    sizes = getattr(args, "cudagraph_capture_sizes", None)
    if sizes is None:
        sizes = capture_sizes_of(getattr(args, "compilation_config", None))
    return EngineOptions(
        device=find_device(),
        load_format=str(args.load_format),
        tensor_parallel_size=getattr(args, "tensor_parallel_size", 1),
        data_parallel_size=getattr(args, "data_parallel_size", 1),
        pipeline_parallel_size=getattr(args, "pipeline_parallel_size", 1),
        enable_eplb=bool(getattr(args, "enable_eplb", False)),
        max_model_len=length if isinstance(length, int) else None,
        enforce_eager=bool(getattr(args, "enforce_eager", False)),
        compiles=is_compiled(getattr(args, "compilation_config", None), level),
        async_scheduling=getattr(args, "async_scheduling", None),
        cudagraph_mode=mode,
        kv_connector=kv_connector_of(transfer, getattr(args, "kv_offloading_size", None)),
        attention_backend=attention_backend_of(args),
        kv_cache_dtype=str(getattr(args, "kv_cache_dtype", "auto")),
        max_num_seqs=getattr(args, "max_num_seqs", None),
        capture_sizes=None if sizes is None else tuple(sizes),
        log_stats=not getattr(args, "disable_log_stats", False),
    )


def asked_of(args: Any) -> HeadAsModel:
    """Return the target and speculation that an ``EngineArgs`` or command line requests.

    Raises:
        ConfigError: the model is the folder of a draft head, and the folder is invalid.
    """
    model = getattr(args, "model_tag", None) or args.model
    return asked_for(model, merged_speculative_config(args))


def examine_args(args: Any, *, is_headless: bool = False) -> Examined:
    """Check an ``EngineArgs`` or a parsed command line, and resolve its speculation.

    Args:
        args: what was asked for.
        is_headless: whether this process has no front end, if ``args`` does not say so.
    """
    engine, problems = engine_of(args), Problems()
    asked = problems.run(asked_of, args)
    if asked is not None:
        problems.run(quantized.check, args, asked.spec)
    found = examine(
        getattr(args, "model_tag", None) or args.model,
        merged_speculative_config(args),
        args.additional_config,
        engine,
    )
    for problem in found.problems:
        problems.add(problem)
    if asked is not None:
        problems.run(multimodal.check, str(asked.model))
    # Front ends collect; all nodes of a group have the same options, but not the same disks.
    has_front_end = not (is_headless or getattr(args, "headless", False))
    if not problems and has_front_end and is_here(engine):
        problems.run(check_collect_folder, args.additional_config)
    return found.with_problems(problems)


def examine(
    model: str | None,
    speculative_config: Any,
    additional_config: Any = NOTHING,
    engine: EngineOptions | None = None,
) -> Examined:
    """Check everything that can be checked without loading a model, with all known methods.

    Args:
        model: the target, a folder or a hub name.
        speculative_config: value given by the user; None for no speculation.
        additional_config: value given by the user.
        engine: other options that matter.
    """
    found = examine_config(
        model, speculative_config, additional_config, engine, methods=all_methods()
    )
    # Last: wrong options are reported before problems of the machine.
    problems = Problems(found.problems)
    if is_here(engine):
        problems.run(check_folders, engine)
    speculation = found.speculation
    if speculation is not None and speculation.verify_backend is not None:
        from vllm_ascend_spec.verification.backend import require_backend

        problems.run(require_backend, speculation.verify_backend, speculation.device or "cpu")
    return found.with_problems(problems)


def resolve_engine(
    model: str | None,
    speculative_config: Any,
    additional_config: Any = NOTHING,
    engine: EngineOptions | None = None,
) -> SpecConfig | None:
    """Return the resolved speculation, None without one; the arguments are those of ``examine``.

    Raises:
        AscendSpecError: the first problem; a ConfigError names the option, its value and what is
            valid.
    """
    return examine(model, speculative_config, additional_config, engine).resolved()


def is_here(engine: EngineOptions | None) -> TypeGuard[EngineOptions]:
    """Tell whether the engine would run on this machine; `check` may be for another device."""
    return engine is not None and (engine.device is None or engine.device.find())
