"""What was asked for, as the rules look at it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from vllm_ascend_spec.config.methods import Method
from vllm_ascend_spec.config.schema import SpecOptions

UNKNOWN = ""
# What vLLM has beside the mode of graphs: without compilation there are none.
NO_COMPILATION = (0, "0", "NONE")


@dataclass(frozen=True, kw_only=True)
class Engine:
    """The options of an engine that are not about speculation but have a say in it.

    Attributes:
        device: ``npu``, ``cuda``, ``cpu`` or None, see ``platform/select.py``.
        load_format: with ``dummy`` no weights are read, so none are looked for.
        tensor_parallel_size: over how many devices the target is split.
        max_model_len: longest request; None or -1 where the checkpoint says it.
        enforce_eager: whether no graphs are used.
        cudagraph_mode: name of vLLM's ``CUDAGraphMode``; None for its default, :data:`UNKNOWN`
            where other options have a say in it.
    """

    device: str | None = None
    load_format: str = "auto"
    tensor_parallel_size: int = 1
    max_model_len: int | None = None
    enforce_eager: bool = False
    cudagraph_mode: str | None = None


@dataclass(frozen=True, kw_only=True)
class Request:
    """A speculative config with everything around it; each value alone has been checked.

    Attributes:
        spec: the speculative config, with vLLM's names of its keys.
        method: the method that it names.
        section: our section of ``--additional-config``, as given.
        options: the same with defaults.
        additional: all of ``--additional-config``.
        model: the target, a folder or a hub's name; None if it is not known.
        engine: what else was given.
    """

    spec: Mapping[str, Any]
    method: Method
    section: Mapping[str, Any]
    options: SpecOptions
    additional: Mapping[str, Any] = field(default_factory=dict)
    model: str | None = None
    engine: Engine = field(default_factory=Engine)


def cudagraph_mode_of(compilation: Any) -> str | None:
    """Return the mode of graphs that a compilation config asks for; None if it says nothing.

    Args:
        compilation: as given by the person, or as vLLM has parsed it.
    """
    get = compilation.get if isinstance(compilation, Mapping) else partial(_attribute, compilation)
    mode = get("mode")
    if mode is not None and _name_of(mode) in NO_COMPILATION:
        return "NONE"
    graphs = get("cudagraph_mode")
    return None if graphs is None else str(_name_of(graphs))


def _attribute(record: Any, name: str) -> Any:
    return getattr(record, name, None)


def _name_of(choice: Any) -> Any:
    name = getattr(choice, "name", choice)
    return name.upper() if isinstance(name, str) else name
