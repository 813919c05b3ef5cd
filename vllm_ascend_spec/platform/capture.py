"""Set which graphs an engine captures, before vLLM and vllm-ascend round their own sizes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from vllm_ascend_spec.config.capture import (
    GIVEN,
    OURS,
    given_of,
    given_sizes,
    has_graphs_by_k,
    set_draft_rows,
    set_sizes_by_k,
    sizes_by_k,
)
from vllm_ascend_spec.config.graph_estimates import (
    capture_within_streams,
    estimates_of,
    layers_of,
    reason_against_none,
)
from vllm_ascend_spec.config.resolved import SpecConfig, speculation_of
from vllm_ascend_spec.config.schema import AUTO, PLANNED
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.graphs import distribution_name
from vllm_ascend_spec.graphs.capture import Capture, Wanted, capture_of, share_of_draft
from vllm_ascend_spec.graphs.modes import MODES
from vllm_ascend_spec.graphs.streams import USABLE_STREAMS
from vllm_ascend_spec.graphs.tiers import (
    Tier,
    sizes_of_tiers,
    tiers_of_drafts,
    tiers_of_schedule,
)
from vllm_ascend_spec.graphs.validate_sizes import OPTION, check
from vllm_ascend_spec.log import log_once
from vllm_ascend_spec.platform.dynamic_k import fix_length

if TYPE_CHECKING:
    from vllm.config import VllmConfig

# Marks vLLM's compilation config, which a draft's copy of the configuration shares, as done.
_DONE = "ascend_spec_capture"
# The planner's names of limits, and the options that set them.
OPTIONS = {
    "budget.graphs": f"{OURS}.capture_graphs",
    "budget.max_tokens": "compilation_config.max_cudagraph_capture_size",
    "divisor": "--tensor-parallel-size",
}


def set_capture_sizes(
    vllm_config: VllmConfig,
    divisor_of: Callable[[VllmConfig], int],
    *,
    draft_has_pieces: bool = False,
    may_lack_streams: bool = False,
) -> None:
    """Set an engine's capture sizes with speculation: the planned ones, or exactly those given.

    Args:
        vllm_config: configuration of the engine, with its final graph mode.
        divisor_of: returns the number that every size must be a multiple of on this device.
        draft_has_pieces: whether a draft runs in vLLM's piecewise graphs on this device.
        may_lack_streams: whether this device may have too few streams for its graphs.

    Raises:
        ConfigError: the given sizes or limits are not possible; names the nearest that are.
    """
    compilation = vllm_config.compilation_config
    if vllm_config.speculative_config is None or vllm_config.model_config is None:
        return
    mode = getattr(compilation.cudagraph_mode, "name", None)
    if mode not in MODES or hasattr(compilation, _DONE):
        return
    setattr(compilation, _DONE, True)
    asked, divisor = speculation_of(vllm_config), divisor_of(vllm_config)
    stock = [*(compilation.cudagraph_capture_sizes or ())]
    device = draft_has_pieces, may_lack_streams
    _lay(vllm_config, asked, mode, divisor, *device)
    if asked.draft_length != AUTO or not may_lack_streams:
        return
    sizes, by_k = compilation.cudagraph_capture_sizes, sizes_by_k(compilation)
    reason = reason_against_none(vllm_config, asked, mode, sizes, by_k)
    if reason is not None:
        fix_length(vllm_config, asked, reason)
        _set_sizes(vllm_config, stock)
        _lay(vllm_config, speculation_of(vllm_config), mode, divisor, *device)


def _lay(
    vllm_config: VllmConfig,
    asked: SpecConfig,
    mode: str,
    divisor: int,
    draft_has_pieces: bool,
    may_lack_streams: bool,
) -> None:
    compilation, widest = vllm_config.compilation_config, vllm_config.scheduler_config.max_num_seqs
    tiers = tiers_of(vllm_config, asked)
    if len(tiers) > 1 and MODES[mode].has_full_decode:
        found = sizes_of_tiers(compilation.cudagraph_capture_sizes, tiers, widest, divisor)
        set_sizes_by_k(compilation, found)
    if asked.capture == GIVEN:
        _require_exactly(vllm_config, mode, divisor)
    elif asked.capture == PLANNED:
        _plan(vllm_config, asked, mode, divisor, draft_has_pieces, may_lack_streams)


def _require_exactly(vllm_config: VllmConfig, mode: str, divisor: int) -> None:
    """Raise unless vLLM will capture exactly the sizes that were given."""
    compilation, scheduler = vllm_config.compilation_config, vllm_config.scheduler_config
    given = given_sizes(compilation) or ()
    if MODES[mode].has_full_decode:
        most = scheduler.max_num_batched_tokens if MODES[mode].has_mixed else 0
        tiers = tiers_of(vllm_config, speculation_of(vllm_config))
        check(given, scheduler.max_num_seqs, tiers, divisor, mixed_tokens=most)
    kept = compilation.cudagraph_capture_sizes
    if kept != sorted(given):
        problem = f"vLLM would capture {kept}; nearest valid list: {kept}"
        raise ConfigError(OPTION, list(given), problem)


def _plan(
    vllm_config: VllmConfig,
    asked: SpecConfig,
    mode: str,
    divisor: int,
    draft_has_pieces: bool,
    may_lack_streams: bool,
) -> None:
    try:
        wanted = wanted_of(vllm_config, asked, mode, divisor)
        wanted = replace(wanted, draft_has_pieces=draft_has_pieces)
        capture = (
            capture_within_streams(wanted, vllm_config, asked)
            if may_lack_streams
            else capture_of(wanted)
        )
    except ConfigError as error:
        option = OPTIONS.get(error.option, error.option)
        refused = ConfigError(option, error.value, error.problem)
        if asked.capture_graphs is not None or asked.capture_load is not None:
            raise refused from None
        # Nobody asked for a plan: the engine starts as it would without one.
        log_once(logging.WARNING, f"Graphs are not planned: {refused}")
        return
    _set_sizes(vllm_config, capture.sizes)
    if len(capture.decode_by_k) > 1:
        set_sizes_by_k(vllm_config.compilation_config, capture.decode_by_k)
    set_draft_rows(vllm_config.compilation_config, capture.draft_rows)
    log_once(logging.INFO, told(capture, vllm_config, asked, mode))


def wanted_of(vllm_config: VllmConfig, asked: SpecConfig, mode: str, divisor: int) -> Wanted:
    """Return the planner's input for an engine.

    Raises:
        ConfigError: ``capture_load`` names a file that cannot be read.
    """
    compilation, scheduler = vllm_config.compilation_config, vllm_config.scheduler_config
    most = given_of(compilation, "max_cudagraph_capture_size")
    widest, load = scheduler.max_num_seqs, None
    if asked.capture_load is not None:
        load = distribution_name.named_or_read(asked.capture_load, widest, f"{OURS}.capture_load")
    share = share_of_draft(asked.max_k, *layers_of(vllm_config, asked))
    share = share if asked.has_draft_rows else 0.0
    return Wanted(
        mode=mode,
        max_num_seqs=widest,
        tiers=tiers_of(vllm_config, asked),
        stock=tuple(compilation.cudagraph_capture_sizes),
        divisor=divisor,
        max_tokens=min(n for n in (most, scheduler.max_num_batched_tokens) if n is not None),
        graphs=asked.capture_graphs,
        load=load,
        draft_share=share,
    )


def tiers_of(vllm_config: VllmConfig, asked: SpecConfig) -> tuple[Tier, ...]:
    """Return the tiers (one for each K) of decode batches that have graphs."""
    compilation, widest = vllm_config.compilation_config, vllm_config.scheduler_config.max_num_seqs
    mode = MODES[compilation.cudagraph_mode.name]
    if mode.has_full_decode and not has_graphs_by_k(compilation):
        return tiers_of_drafts(widest, [asked.max_k])
    if asked.draft_lengths is not None:
        return tiers_of_drafts(widest, asked.draft_lengths)
    if asked.schedule is not None:
        return tiers_of_schedule(widest, asked.schedule)
    return tiers_of_drafts(widest, [asked.max_k])


def _set_sizes(vllm_config: VllmConfig, sizes: list[int]) -> None:
    """Set the sizes as if the user had given them, and let vLLM derive its other settings."""
    compilation = vllm_config.compilation_config
    compilation.cudagraph_capture_sizes = sizes
    compilation.max_cudagraph_capture_size = None
    # It may refer to the capture sizes by name, which vLLM has replaced by the former sizes.
    named = given_of(compilation, "compile_sizes")
    compilation.compile_sizes = None if named is None else [*named]
    vllm_config._set_cudagraph_sizes()


def told(capture: Capture, vllm_config: VllmConfig, asked: SpecConfig, mode: str) -> str:
    """Return the log message about a plan, before anything is captured."""
    drafts = sorted({tier.k for tier in tiers_of(vllm_config, asked)})
    lines = [
        f"Graphs ({mode}): planned for K={', '.join(map(str, drafts))} and batches of up to "
        f"{vllm_config.scheduler_config.max_num_seqs} requests: sizes {capture.sizes}, expected "
        f"padding {capture.expected_padding:.1%} of the useful work (load: {capture.load})"
    ]
    if capture.draft_rows:
        lines.append(f"draft steps 2 to K: {sorted({*capture.draft_rows.values()})}")
    lines += capture.notes
    if (cost := estimated(capture, vllm_config, mode)) is not None:
        lines.append(cost)
    return "; ".join(lines) + "."


def estimated(capture: Capture, vllm_config: VllmConfig, mode: str) -> str | None:
    """Return the number of graphs and their streams; None if the layers are unknown."""
    asked = speculation_of(vllm_config)
    found = estimates_of(vllm_config, asked, mode, capture.sizes, capture.decode_by_k)
    if found is None:
        return None
    return (
        f"{found.graphs} graphs; on an NPU before HDK 25.5.1 they are estimated to take "
        f"{found.streams} of about {USABLE_STREAMS} streams"
    )
