"""Which graphs an engine would capture, by vLLM's configuration or by our own plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vllm_ascend_spec.config.capture import DEFAULT_MODE, GIVEN, sizes_by_k
from vllm_ascend_spec.config.device import Device
from vllm_ascend_spec.config.draft_length import because
from vllm_ascend_spec.config.engine import EngineOptions
from vllm_ascend_spec.config.graph_estimates import (
    capture_within_streams,
    estimates_of,
    layers_of,
    reason_against_none,
)
from vllm_ascend_spec.config.resolved import SpecConfig
from vllm_ascend_spec.config.schema import AUTO
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.graphs import distribution_name, stock_rules
from vllm_ascend_spec.graphs.capture import Wanted, capture_of, share_of_draft
from vllm_ascend_spec.graphs.modes import MODES
from vllm_ascend_spec.graphs.tiers import Tier, tiers_of_drafts, tiers_of_schedule

if TYPE_CHECKING:
    from vllm.config import VllmConfig

NONE = "NONE"
ELSEWHERE = "planned here; an engine on that device says at its start what it captures"


@dataclass(frozen=True)
class Family:
    """How a family of draft loops captures graphs.

    Attributes:
        sizes: the stock rule for capture sizes, used without a plan.
        has_graphs_by_k: whether full graphs are captured for each K if K is dynamic.
        may_lack_streams: whether its devices may have too few streams for graphs.
    """

    sizes: Callable[[stock_rules.CaptureInputs], list[int]]
    has_graphs_by_k: bool
    may_lack_streams: bool


VLLM = Family(stock_rules.vllm_sizes, has_graphs_by_k=False, may_lack_streams=False)
ASCEND = Family(stock_rules.ascend_sizes, has_graphs_by_k=True, may_lack_streams=True)
FAMILIES = {"vllm": VLLM, "ascend": ASCEND}


def capture_of_engine(
    device: Device | None,
    speculation: SpecConfig | None,
    asked: EngineOptions,
    engine: VllmConfig,
    *,
    is_elsewhere: bool,
) -> dict[str, Any]:
    """Return the graph mode, the capture sizes and the number of graphs.

    Args:
        device: the kind of device to check for.
        speculation: the resolved speculation of the engine.
        asked: the options given for the engine.
        engine: vLLM's configuration, built for this machine's device.
        is_elsewhere: whether ``device`` differs from this machine's device.
    """
    if device is not None and not device.has_graphs:
        return _nothing(f"no graphs are captured on {device.about}")
    if asked.enforce_eager:
        return _nothing("no graphs are captured with --enforce-eager")
    if not is_elsewhere:
        return _built(speculation, engine)
    if speculation is None:
        return _nothing("not planned without speculation", mode=None)
    try:
        return _planned(device, speculation, asked, engine)
    except ConfigError as error:
        return _nothing(str(error), mode=None)


def _nothing(why: str, mode: str | None = NONE) -> dict[str, Any]:
    record = _record(mode, (), {})
    return {**record, "note": why}


def _record(
    mode: str | None, sizes: tuple[int, ...], by_k: dict[str, list[int]], note: str = ""
) -> dict[str, Any]:
    return {
        "mode": mode,
        "sizes": list(sizes),
        "sizes_by_k": by_k,
        "expected_padding": None,
        "graphs": None,
        "note": note or None,
    }


def _built(speculation: SpecConfig | None, engine: VllmConfig) -> dict[str, Any]:
    """Return what vLLM's built configuration would capture."""
    compilation = engine.compilation_config
    mode = getattr(compilation.cudagraph_mode, "name", NONE)
    if mode == NONE:
        return _nothing("vLLM captures none in this mode")
    sizes = tuple(compilation.cudagraph_capture_sizes or ())
    laid = sizes_by_k(compilation)
    by_k = {str(k): list(row) for k, row in laid.items()}
    record = _record(mode, sizes, by_k, "as an engine captures them")
    if MODES[mode].has_full_decode and not laid:
        laid = _of_one_k(sizes, engine.scheduler_config.max_num_seqs, speculation)
    return {**record, "graphs": _graphs(mode, sizes, laid, speculation, engine)}


def _of_one_k(
    sizes: Sequence[int], widest: int, speculation: SpecConfig | None
) -> dict[int, tuple[int, ...]]:
    """Return the sizes at which decode batches are replayed, keyed by the only K.

    As ``vllm/v1/cudagraph_dispatcher.py:CudagraphDispatcher.initialize_cudagraph_keys`` picks them.
    """
    drafts = 0 if speculation is None else speculation.max_k
    query_len = drafts + 1
    return {drafts: tuple(size for size in sizes if query_len <= size <= widest * query_len)}


def _planned(
    device: Device | None, speculation: SpecConfig, asked: EngineOptions, engine: VllmConfig
) -> dict[str, Any]:
    """Return what our planner chooses, given our port of the device's stock rule."""
    widest = engine.scheduler_config.max_num_seqs
    tiers = _tiers(speculation, widest)
    family = FAMILIES.get(device.family, VLLM) if device is not None else VLLM
    mode = asked.cudagraph_mode or DEFAULT_MODE
    if len(tiers) > 1 and not family.has_graphs_by_k and mode != NONE:
        mode = "PIECEWISE"
    if mode not in MODES:
        return _nothing("no graphs are captured in this mode")
    if speculation.capture == GIVEN:
        return _record(mode, asked.capture_sizes or (), {}, "as given")
    rules = stock_rules.CaptureInputs(
        max_num_seqs=widest,
        tiers=tiers,
        schedule=speculation.schedule,
        tensor_parallel_size=asked.tensor_parallel_size,
    )
    load = None
    if speculation.capture_load is not None:
        load = distribution_name.named_or_read(speculation.capture_load, widest, "capture_load")
    layers = layers_of(engine, speculation)
    wanted = Wanted(
        mode=mode,
        max_num_seqs=widest,
        tiers=tiers,
        stock=tuple(family.sizes(rules)),
        graphs=speculation.capture_graphs,
        max_tokens=engine.scheduler_config.max_num_batched_tokens,
        load=load,
        draft_share=share_of_draft(speculation.max_k, *layers)
        if speculation.has_draft_rows
        else 0.0,
    )
    capture = (
        capture_within_streams(wanted, engine, speculation)
        if family.may_lack_streams
        else capture_of(wanted)
    )
    sizes = tuple(capture.sizes)
    if speculation.draft_length == AUTO and family.may_lack_streams:
        reason = reason_against_none(engine, speculation, mode, sizes, capture.decode_by_k)
        if reason is not None:
            fixed = speculation.with_fixed_length(because(reason))
            return {**_planned(device, fixed, asked, engine), "note": because(reason)}
    by_k = {str(k): list(row) for k, row in capture.decode_by_k.items()}
    record = _record(mode, sizes, by_k, "; ".join((ELSEWHERE, *capture.notes)))
    return {
        **record,
        "expected_padding": capture.expected_padding,
        "graphs": _graphs(mode, sizes, capture.decode_by_k, speculation, engine),
    }


def _tiers(speculation: SpecConfig, widest: int) -> tuple[Tier, ...]:
    if speculation.draft_lengths is not None:
        return tiers_of_drafts(widest, speculation.draft_lengths)
    if speculation.schedule is not None:
        return tiers_of_schedule(widest, speculation.schedule)
    return tiers_of_drafts(widest, [speculation.max_k])


def _graphs(
    mode: str,
    sizes: Sequence[int],
    by_k: Mapping[int, Sequence[int]],
    speculation: SpecConfig | None,
    engine: VllmConfig,
) -> int | None:
    found = estimates_of(engine, speculation, mode, sizes, by_k)
    return None if found is None else found.graphs
