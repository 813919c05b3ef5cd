"""Checks of values that only vLLM knows, because its plugins can add to them.

Importing vLLM takes six seconds. ``LLM()`` and ``vllm serve`` have imported it already; ``check``
imports it only if one of these options is given.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any, get_args

from vllm_ascend_spec.config.values import one_of


def quantization(value: Any) -> str | None:
    """Return what is valid if neither vLLM nor a plugin has the quantization ``value``."""
    with _vllm():
        from vllm.model_executor.layers.quantization import QUANTIZATION_METHODS

    lowered = value.lower() if isinstance(value, str) else value
    return one_of(*sorted(QUANTIZATION_METHODS))(lowered)


def kv_cache_dtype(value: Any) -> str | None:
    """Return what is valid if ``value`` is not a dtype of the KV cache."""
    with _vllm():
        from vllm.config.cache import CacheDType

    return one_of(*get_args(CacheDType))(value)


def attention_backend(value: Any) -> str | None:
    """Return what is valid if ``value`` names no attention backend."""
    with _vllm():
        from vllm.v1.attention.backends.registry import AttentionBackendEnum

    if isinstance(value, AttentionBackendEnum):
        return None
    raised = value.upper() if isinstance(value, str) else value
    return one_of("AUTO", *AttentionBackendEnum.__members__)(raised)


def moe_backend(value: Any) -> str | None:
    """Return what is valid if ``value`` is not an MoE backend."""
    with _vllm():
        from vllm.config.kernel import MoEBackend

    return one_of(*get_args(MoEBackend))(value)


def load_config(value: Any) -> str | None:
    """Return what is valid if ``value`` is not a load config, or no loader has its format."""
    with _vllm():
        from pydantic import TypeAdapter, ValidationError
        from vllm.config import LoadConfig
        from vllm.model_executor import model_loader

    try:
        parsed = TypeAdapter(LoadConfig).validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        return f"{where}: {first['msg']}" if where else "valid: a JSON object, vLLM's LoadConfig"
    problem = one_of(*model_loader._LOAD_FORMAT_TO_MODEL_LOADER)(parsed.load_format)
    return f"load_format: {problem}" if problem else None


def draft_config(model: str, revision: Any = None) -> dict[str, Any] | None:
    """Return the ``config.json`` of a model on a hub, as vLLM fetches it.

    Returns:
        None if vLLM has not been imported, or the hub does not have the file.
    """
    return _fetched(model, revision or "main") if "vllm" in sys.modules else None


@functools.cache
def _fetched(model: str, revision: str) -> dict[str, Any] | None:
    from vllm.transformers_utils.repo_utils import get_hf_file_to_dict

    try:
        return get_hf_file_to_dict("config.json", model, revision)
    except Exception:  # any error of a hub; vLLM asks again and reports it
        return None


@contextmanager
def _vllm() -> Iterator[None]:
    """Import vLLM with its plugins, keeping stdout clean: ``check`` prints only JSON."""
    if "vllm" in sys.modules:
        yield
        return
    level = os.environ.get("VLLM_LOGGING_LEVEL")
    os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
    try:
        with redirect_stdout(sys.stderr):
            from vllm.plugins import load_general_plugins

            load_general_plugins()
            yield
    finally:
        os.environ.pop("VLLM_LOGGING_LEVEL")
        if level is not None:
            os.environ["VLLM_LOGGING_LEVEL"] = level
