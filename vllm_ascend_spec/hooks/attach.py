"""Hand the resolved record from the hook at ``EngineArgs`` to the configuration that vLLM builds.

vLLM builds its ``VllmConfig`` deep inside ``create_engine_config`` and shows it to the platform on
the way. The record waits in a context variable until then. For a ``VllmConfig`` that is built
without ``EngineArgs`` no record waits, so its own fields are resolved.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from vllm_ascend_spec.config.additional import section_of
from vllm_ascend_spec.config.capture import given_sizes
from vllm_ascend_spec.config.combinations import OF_BUILT, device_rules
from vllm_ascend_spec.config.device import Device
from vllm_ascend_spec.config.draft_length import LENGTH, because
from vllm_ascend_spec.config.draft_sampling import OPTION as SAMPLING
from vllm_ascend_spec.config.engine import (
    UNKNOWN,
    EngineOptions,
    SpecInput,
    attention_backend_of,
    kv_connector_of,
)
from vllm_ascend_spec.config.options import is_unset
from vllm_ascend_spec.config.page import refuse_page
from vllm_ascend_spec.config.resolve import require_speculation, resolve
from vllm_ascend_spec.config.resolved import ATTRIBUTE, SpecConfig, attach
from vllm_ascend_spec.config.schema import ADAPTIVE, AUTO, SpecOptions
from vllm_ascend_spec.config.spec_options import check_method
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.hooks import collect_hook
from vllm_ascend_spec.methods.registry import all_methods

if TYPE_CHECKING:
    from vllm.config import VllmConfig

_waiting: ContextVar[SpecConfig | None] = ContextVar("_waiting", default=None)


@contextmanager
def waiting(speculation: SpecConfig | None) -> Iterator[None]:
    """Keep ``speculation`` ready for the configuration that is built in this context."""
    token = _waiting.set(speculation)
    try:
        yield
    finally:
        _waiting.reset(token)


def attach_resolved(vllm_config: VllmConfig, device: Device) -> SpecConfig | None:
    """Attach the resolved speculation to a configuration, and return it.

    Args:
        vllm_config: configuration that vLLM passes to the platform, or a copy for a draft model.
        device: the platform's kind of device.

    Raises:
        ConfigError: the configuration was built by hand and cannot be used.
    """
    collect_hook.prepare(vllm_config.additional_config)
    spec = vllm_config.speculative_config
    if spec is None:
        section = section_of(vllm_config.additional_config)
        SpecOptions.from_mapping(section)
        require_speculation(section)
        return None
    found = pending_or_attached(vllm_config) or resolve_built(vllm_config, device)
    attach(vllm_config, found)
    return found


def pending_or_attached(vllm_config: VllmConfig) -> SpecConfig | None:
    """Return the attached or waiting speculation of a configuration; None if there is none."""
    return getattr(vllm_config.speculative_config, ATTRIBUTE, None) or _waiting.get()


def resolve_built(vllm_config: VllmConfig, device: Device) -> SpecConfig:
    """Resolve a configuration that was built without ``EngineArgs``.

    Raises:
        ConfigError: naming the option, its value and what is valid.
    """
    built: Any = vllm_config.speculative_config
    method = check_method({"method": built.method}, all_methods())
    if method.vllm_method is not None:
        raise ConfigError(
            "speculative_config.method",
            method.name,
            "vLLM's own configuration does not know it; build it by EngineArgs or LLM()",
        )
    values = {name: getattr(built, name, None) for name in sorted(method.options)}
    section = section_of(vllm_config.additional_config)
    refuse_page(vllm_config.additional_config)
    if SpecOptions.from_mapping(section).draft_length == ADAPTIVE:
        problem = (
            "vLLM's configuration has to be prepared for it; build it with EngineArgs or LLM()"
        )
        raise ConfigError(LENGTH, ADAPTIVE, problem)
    request = SpecInput(
        spec={
            name: value
            for name, value in values.items()
            # vLLM's configuration always says how drafts are sampled, whoever chose it.
            if value is not None and (name == SAMPLING or not is_unset(name, value))
        },
        method=method,
        section=section,
        options=SpecOptions.from_mapping(section),
        additional=vllm_config.additional_config,
        engine=_engine_of(vllm_config, device),
    )
    for rule in (*OF_BUILT, *device_rules(request)):
        rule(request)
    found = resolve(request)
    if found.draft_length == AUTO:
        return found.with_fixed_length(because("a VllmConfig that was built by hand"))
    return found


def confirm(vllm_config: VllmConfig, speculation: SpecConfig) -> None:
    """Raise unless vLLM's configuration has the resolved method and K.

    Raises:
        ConfigError: it has another method or another K.
    """
    wanted = {
        "method": speculation.vllm_method,
        "num_speculative_tokens": speculation.max_k,
    }
    for option, value in wanted.items():
        found = getattr(vllm_config.speculative_config, option, None)
        if found != value:
            raise ConfigError(f"speculative_config.{option}", value, f"vLLM made {found!r} of it")


def _engine_of(vllm_config: VllmConfig, device: Device) -> EngineOptions:
    parallel = vllm_config.parallel_config
    return EngineOptions(
        device=device,
        tensor_parallel_size=parallel.tensor_parallel_size,
        data_parallel_size=parallel.data_parallel_size,
        pipeline_parallel_size=parallel.pipeline_parallel_size,
        enable_eplb=parallel.enable_eplb,
        # vLLM has not settled it yet; the drafter checks the final mode.
        cudagraph_mode=UNKNOWN,
        kv_connector=kv_connector_of(
            vllm_config.kv_transfer_config,
            getattr(vllm_config.cache_config, "kv_offloading_size", None),
        ),
        attention_backend=attention_backend_of(vllm_config),
        kv_cache_dtype=vllm_config.cache_config.cache_dtype,
        max_num_seqs=vllm_config.scheduler_config.max_num_seqs,
        capture_sizes=given_sizes(vllm_config.compilation_config),
    )
