"""Count an engine's graphs, and estimate their streams from its models' configurations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from vllm_ascend_spec.config.resolved import SpecConfig
from vllm_ascend_spec.graphs.capture import Capture, Wanted, capture_of
from vllm_ascend_spec.graphs.modes import MODES
from vllm_ascend_spec.graphs.streams import USABLE_STREAMS, streams_each

if TYPE_CHECKING:
    from vllm.config import VllmConfig


@dataclass(frozen=True)
class Estimates:
    """What an engine captures.

    Attributes:
        graphs: number of captured graphs.
        streams: streams that they are estimated to take on an old CANN.
    """

    graphs: int
    streams: int


def layers_of(vllm_config: VllmConfig, speculation: SpecConfig | None) -> tuple[int, int]:
    """Return how many layers the target and the draft have.

    The target has 0 if its number is not known. The draft has 0 without a draft loop, and with one
    at least 1, whatever its configuration says.
    """
    target = getattr(vllm_config.model_config, "hf_text_config", None)
    layers = getattr(target, "num_hidden_layers", 0) or 0
    if speculation is None or speculation.draft_loop is None:
        return layers, 0  # without a draft model vLLM puts the target there
    draft: Any = getattr(vllm_config.speculative_config, "draft_model_config", None)
    draft_layers = getattr(getattr(draft, "hf_config", None), "num_hidden_layers", 0) or 0
    # For MiMo's MTP layers vLLM sets num_hidden_layers to 0.
    return layers, max(1, draft_layers)


def capture_within_streams(
    wanted: Wanted, vllm_config: VllmConfig, speculation: SpecConfig | None
) -> Capture:
    """Choose the capture sizes of an engine on an NPU.

    Nothing tells whether the HDK is older than 25.5.1. So more graphs than stock's are captured
    only if an old HDK, too, is estimated to have enough streams for them.

    Args:
        wanted: what the planner reads of the engine.
        vllm_config: the engine's configuration.
        speculation: the engine's resolved speculation.

    Raises:
        ConfigError: see :func:`vllm_ascend_spec.graphs.capture.capture_of`.
    """
    capture = capture_of(wanted)
    found = estimates_of(vllm_config, speculation, wanted.mode, capture.sizes, capture.decode_by_k)
    if found is None or found.streams <= USABLE_STREAMS:
        return capture
    return capture_of(replace(wanted, own=0))


def reason_against_none(
    vllm_config: VllmConfig,
    speculation: SpecConfig,
    mode: str,
    sizes: Sequence[int],
    by_k: Mapping[int, Sequence[int]],
) -> str | None:
    """Return why an NPU cannot have graphs for both K and 0 drafts, or None.

    Args:
        vllm_config: the engine's configuration.
        speculation: the engine's resolved speculation.
        mode: as for :func:`estimates_of`.
        sizes: all captured sizes, in tokens.
        by_k: the sizes for each K. With fewer than two K the result is None.
    """
    found = estimates_of(vllm_config, speculation, mode, sizes, by_k)
    if len(by_k) < 2 or found is None or found.streams <= USABLE_STREAMS:
        return None
    return (
        "the streams before HDK 25.5.1: graphs for K and for 0 are estimated to take "
        f"{found.streams} of about {USABLE_STREAMS}"
    )


def estimates_of(
    vllm_config: VllmConfig,
    speculation: SpecConfig | None,
    mode: str,
    sizes: Sequence[int],
    by_k: Mapping[int, Sequence[int]],
) -> Estimates | None:
    """Return the estimates; None without graphs, or if the target's layers are not known.

    Args:
        vllm_config: the engine's configuration.
        speculation: the engine's resolved speculation; None for none.
        mode: a key of :data:`vllm_ascend_spec.graphs.modes.MODES`.
        sizes: all captured sizes, in tokens.
        by_k: the sizes of the full graphs for decode batches of each K; empty for none.
    """
    layers, draft_layers = layers_of(vllm_config, speculation)
    if not layers or not sizes:
        return None
    if speculation is not None and len(by_k) > 1:
        # Each graph of the target comes with one of the draft for each number of draft steps.
        draft_layers *= max(1, len(speculation.lengths_of_graphs))
    parallel = vllm_config.parallel_config
    several = (
        parallel.tensor_parallel_size > 1,
        parallel.data_parallel_size > 1,
        parallel.enable_expert_parallel,
    )
    each = streams_each(layers, draft_layers=draft_layers, communication_domains=sum(several))
    whole = sum(map(len, by_k.values()))
    decode = {size for row in by_k.values() for size in row}
    # Each K has its own graphs; with piecewise graphs these sizes are captured in both modes.
    graphs = len(sizes) + whole - (0 if MODES[mode].has_pieces else len(decode))
    return Estimates(graphs, graphs * each)
