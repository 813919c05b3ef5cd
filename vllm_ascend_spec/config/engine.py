"""What the user asked for, in the form that the rules check."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from vllm_ascend_spec.config.device import Device
from vllm_ascend_spec.config.method import Method
from vllm_ascend_spec.config.schema import SpecOptions
from vllm_ascend_spec.config.speculators_format import Detected

UNKNOWN = ""
# Stands for the connector that vLLM puts in the place of any other one for this option.
OFFLOADING = "kv_offloading_size"
# Values of vLLM's compilation mode that turn compilation off, and with it all graphs.
NO_COMPILATION = (0, "0", "NONE")


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """The options of an engine that are not about speculation but affect it.

    Attributes:
        device: the kind of device that it runs on, or None if none was found.
        load_format: with ``dummy`` no weights are read, so none are looked for.
        tensor_parallel_size: over how many devices the target is split.
        data_parallel_size: number of data-parallel replicas of the target.
        pipeline_parallel_size: over how many stages the target's layers are split.
        enable_eplb: whether experts move between devices.
        max_model_len: longest request; None or -1 if the checkpoint decides.
        enforce_eager: whether no graphs are used.
        compiles: whether vLLM compiles the model where graphs are used.
        async_scheduling: whether steps are scheduled ahead; None for vLLM's default.
        cudagraph_mode: name of vLLM's ``CUDAGraphMode``; None for its default, :data:`UNKNOWN`
            if it depends on other options.
        kv_connector: name of the KV connector; None for none.
        attention_backend: name of the target's attention backend; None for vLLM's choice.
        kv_cache_dtype: vLLM's name of the KV cache's dtype.
        max_num_seqs: maximum number of requests in a batch; None for vLLM's default.
        capture_sizes: sizes of the captured graphs, in tokens; None if not given.
        log_stats: whether vLLM keeps statistics.
    """

    device: Device | None = None
    load_format: str = "auto"
    tensor_parallel_size: int = 1
    data_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    enable_eplb: bool = False
    max_model_len: int | None = None
    enforce_eager: bool = False
    compiles: bool = True
    async_scheduling: bool | None = None
    cudagraph_mode: str | None = None
    kv_connector: str | None = None
    attention_backend: str | None = None
    kv_cache_dtype: str = "auto"
    max_num_seqs: int | None = None
    capture_sizes: tuple[int, ...] | None = None
    log_stats: bool = True


@dataclass(frozen=True, kw_only=True)
class SpecInput:
    """A speculative config with its context; each value has been checked on its own.

    Attributes:
        spec: the speculative config, with vLLM's names of its keys.
        method: the method that it names.
        section: our section of ``--additional-config``, as given.
        options: the section with defaults filled in.
        additional: all of ``--additional-config``.
        model: the target, a folder or a hub's name; None if it is not known.
        engine: the other options of the engine.
        from_head: keys of ``spec`` that come from the folder of a head given as the model.
        detected: the detected method, if the user named none.
        warnings: warnings about values that were taken for something else.
    """

    spec: Mapping[str, Any]
    method: Method
    section: Mapping[str, Any]
    options: SpecOptions
    additional: Mapping[str, Any] = field(default_factory=dict)
    model: str | None = None
    engine: EngineOptions = field(default_factory=EngineOptions)
    from_head: frozenset[str] = frozenset()
    detected: Detected | None = None
    warnings: tuple[str, ...] = ()


def cudagraph_mode_of(compilation: Any) -> str | None:
    """Return the graph mode that a compilation config asks for; None if it says nothing.

    Args:
        compilation: as given by the user, or as vLLM has parsed it.
    """
    get = _getter(compilation)
    mode = get("mode")
    if mode is not None and _name_of(mode) in NO_COMPILATION:
        return "NONE"
    graphs = get("cudagraph_mode")
    return None if graphs is None else str(_name_of(graphs))


def is_compiled(compilation: Any, level: int = 2) -> bool:
    """Tell whether a compilation config lets vLLM compile the model.

    Args:
        compilation: as given by the user, or as vLLM has parsed it.
        level: optimization level, which decides if the config says nothing.
    """
    mode = _getter(compilation)("mode")
    return level > 0 if mode is None else _name_of(mode) not in NO_COMPILATION


def capture_sizes_of(compilation: Any) -> tuple[int, ...] | None:
    """Return the capture sizes that a compilation config asks for; None if it says nothing.

    Args:
        compilation: as given by the user, or as vLLM has parsed it.
    """
    sizes = _getter(compilation)("cudagraph_capture_sizes")
    # vLLM refuses anything else.
    return tuple(sizes) if isinstance(sizes, list | tuple) else None


def kv_connector_of(transfer: Any, offloading_gib: float | None) -> str | None:
    """Return the name of the KV connector, or None.

    Args:
        transfer: ``--kv-transfer-config``, as given by the user, or as vLLM has parsed it.
        offloading_gib: ``--kv-offloading-size``, of which vLLM makes a connector later.
    """
    if offloading_gib is not None:
        return OFFLOADING
    if isinstance(transfer, Mapping):
        return transfer.get("kv_connector")
    return getattr(transfer, "kv_connector", None)


def attention_backend_of(args: Any) -> str | None:
    """Return the name of the attention backend that is asked for; None for vLLM's choice.

    Args:
        args: an ``EngineArgs``, a parsed command line, or vLLM's configuration.
    """
    backend = getattr(args, "attention_backend", None)
    if backend is None:
        backend = _getter(getattr(args, "attention_config", None) or {})("backend")
    name = _name_of(backend)
    return None if name in (None, "AUTO") else str(name)


def _getter(compilation: Any) -> Callable[[str], Any]:
    if isinstance(compilation, Mapping):
        return compilation.get
    return partial(_attribute, compilation)


def _attribute(record: Any, name: str) -> Any:
    return getattr(record, name, None)


def _name_of(choice: Any) -> Any:
    name = getattr(choice, "name", choice)
    return name.upper() if isinstance(name, str) else name
