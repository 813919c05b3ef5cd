"""How the captured graphs are chosen: by a plan, by the user's list, or as stock does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from vllm_ascend_spec.config.engine import UNKNOWN, SpecInput
from vllm_ascend_spec.config.parallel_drafting import in_one_pass
from vllm_ascend_spec.config.schedule import NAME as SCHEDULE
from vllm_ascend_spec.config.schema import PLANNED, SECTION
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.graphs import distribution_name
from vllm_ascend_spec.graphs.modes import MODES
from vllm_ascend_spec.graphs.validate_sizes import OPTION as SIZES
from vllm_ascend_spec.graphs.validate_sizes import check

OURS = f"additional_config.{SECTION}"
OPTIONS = ("capture", "capture_graphs", "capture_load")
# Value of ``capture`` in the resolved record if the user gave the sizes.
GIVEN = "given"
# Stands for a default of vLLM's that is not known yet: more than any engine's.
ANY = 1 << 20
DEFAULT_MODE = "FULL_AND_PIECEWISE"
# Attribute of vLLM's compilation config: what the user gave, before vLLM fills in the rest.
_ATTRIBUTE = "ascend_spec_given"
# Whether each K has full graphs for decode batches, if K changes, and their sizes by K.
_KEEPS, _BY_K = "ascend_spec_graphs_by_k", "ascend_spec_sizes_by_k"
# Widths of draft steps 2 to K, by the target's size that is captured at the same time.
_ROWS = "ascend_spec_draft_rows"


def check_capture(request: SpecInput) -> None:
    """Refuse sizes that would not be captured unchanged, and options that contradict each other.

    The platform checks again once vLLM has settled the rest, such as the graph mode and the widest
    batch.

    Raises:
        ConfigError: naming the option and the nearest list that is valid.
    """
    sizes, section = request.engine.capture_sizes, request.section
    chooses = next((name for name in OPTIONS if section.get(name) is not None), None)
    if sizes is not None and chooses is not None:
        problem = f"contradicts {SIZES}; give one of the two"
        raise ConfigError(f"{OURS}.{chooses}", section[chooses], problem)
    for name in OPTIONS[1:]:
        if section.get(name) is not None and request.options.capture != PLANNED:
            problem = f"has no effect with capture={request.options.capture!r}"
            raise ConfigError(f"{OURS}.{name}", section[name], problem)
    if request.options.capture_load is not None:
        # A file is read later, when the widest batch is known.
        distribution_name.named(request.options.capture_load, 1, f"{OURS}.capture_load")
    mode = mode_of(request)
    if sizes is not None and mode in MODES and MODES[mode].has_full_decode:
        widest = request.engine.max_num_seqs or ANY
        mixed = ANY * 2 if MODES[mode].has_mixed else 0
        check(sizes, widest, request.spec["num_speculative_tokens"], mixed_tokens=mixed)


def capture_warnings(request: SpecInput) -> Iterator[str]:
    """Yield a warning for each option that has no effect because there are no graphs."""
    for option, why in ineffective(request):
        yield f"{option} has no effect: no graphs are captured {why}."


def ineffective(request: SpecInput) -> Iterator[tuple[str, str]]:
    """Yield each option of graphs that has no effect, and why no graphs are captured."""
    engine, section = request.engine, request.section
    if has_graphs(request):
        return
    why = "with enforce_eager" if engine.enforce_eager else "in this mode"
    if engine.device is not None and not engine.device.has_graphs:
        why = f"on {engine.device.about}"
    asked = [f"{OURS}.{name}" for name in OPTIONS if section.get(name) is not None]
    asked += [SIZES] if engine.capture_sizes else []
    for option in asked:
        yield option, why


def has_graphs(request: SpecInput) -> bool:
    """Tell whether graphs may be captured."""
    device = request.engine.device
    return mode_of(request) != "NONE" and (device is None or device.has_graphs)


def mode_of(request: SpecInput) -> str:
    """Return the name of the graph mode if it is known already, else :data:`UNKNOWN`."""
    engine = request.engine
    if engine.device is not None and not engine.device.has_graphs:
        return "NONE"
    if engine.enforce_eager or engine.cudagraph_mode == "NONE":
        return "NONE"
    if request.spec.get(SCHEDULE) is not None or engine.cudagraph_mode == UNKNOWN:
        # vllm/config/vllm.py:VllmConfig._maybe_override_dynamic_sd_cudagraph_mode lowers it where
        # the platform does not keep it (platform/dynamic_k.py).
        return UNKNOWN
    return engine.cudagraph_mode or DEFAULT_MODE


def has_draft_rows(request: SpecInput) -> bool:
    """Tell whether draft steps 2 to K, of one row per request, may use graphs."""
    spec = request.spec
    has_loop = request.method.has_draft_loop and not in_one_pass(request)
    return has_loop and spec["num_speculative_tokens"] > 1 and not spec.get("enforce_eager")


def note_given(compilation: Any) -> None:
    """Keep what the user gave, before vLLM fills in the rest; a second call changes nothing.

    Args:
        compilation: vLLM's ``CompilationConfig``.
    """
    if not hasattr(compilation, _ATTRIBUTE):
        names = ("cudagraph_capture_sizes", "max_cudagraph_capture_size", "compile_sizes")
        given = {name: getattr(compilation, name) for name in names}
        # Copies: vLLM changes lists in place.
        copies = {name: v if v is None or isinstance(v, int) else [*v] for name, v in given.items()}
        setattr(compilation, _ATTRIBUTE, copies)


def given_of(compilation: Any, name: str) -> Any:
    """Return the user's value for an option of ``compilation``; None if not given."""
    return getattr(compilation, _ATTRIBUTE, {}).get(name)


def given_sizes(compilation: Any) -> tuple[int, ...] | None:
    """Return the sizes that the user gave, or None."""
    sizes = given_of(compilation, "cudagraph_capture_sizes")
    return None if sizes is None else tuple(sizes)


def note_graphs_by_k(compilation: Any, is_wanted: bool) -> None:
    """Note whether each K is to have full graphs of its own for decode batches.

    Args:
        compilation: vLLM's ``CompilationConfig``.
        is_wanted: whether each K is to have them.
    """
    setattr(compilation, _KEEPS, is_wanted)


def has_graphs_by_k(compilation: Any) -> bool:
    """Tell whether each K is to have full graphs of its own for decode batches."""
    return getattr(compilation, _KEEPS, False)


def set_sizes_by_k(compilation: Any, sizes: Mapping[int, tuple[int, ...]]) -> None:
    """Store which graphs are for which K, for the worker.

    Args:
        compilation: vLLM's ``CompilationConfig``.
        sizes: capture sizes by K, in tokens.
    """
    setattr(compilation, _BY_K, {k: tuple(row) for k, row in sizes.items()})


def sizes_by_k(compilation: Any) -> Mapping[int, tuple[int, ...]]:
    """Return which graphs are for which K; empty if K is fixed or the graphs are piecewise."""
    return getattr(compilation, _BY_K, {})


def set_draft_rows(compilation: Any, rows: Mapping[int, int]) -> None:
    """Store the widths at which draft steps 2 to K have graphs, for the drafter.

    Args:
        compilation: vLLM's ``CompilationConfig``.
        rows: width by the target's size, in tokens, that is captured at the same time.
    """
    setattr(compilation, _ROWS, dict(rows))


def draft_rows(compilation: Any) -> Mapping[int, int]:
    """Return what :func:`set_draft_rows` stored; empty if the draft has no such graphs."""
    return getattr(compilation, _ROWS, {})
