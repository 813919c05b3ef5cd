"""What an engine's graphs are estimated to take, by the configurations of its models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from vllm_ascend_spec.config.resolved import Speculation
from vllm_ascend_spec.graphs.capture import Capture, Wanted, capture_of
from vllm_ascend_spec.graphs.estimates import USABLE_STREAMS, estimate
from vllm_ascend_spec.graphs.modes import MODES

if TYPE_CHECKING:
    from vllm.config import VllmConfig


@dataclass(frozen=True)
class Estimates:
    """What capturing takes, estimated.

    Attributes:
        graphs: how many are captured.
        bytes: that they take.
        streams: of an old CANN.
    """

    graphs: int
    bytes: int
    streams: int


def layers_of(vllm_config: VllmConfig, speculation: Speculation | None) -> tuple[int, int]:
    """Return how many layers the target and the draft have.

    The target's are 0 where that is not known. The draft's are 0 where there is no draft loop, and
    at least 1 where there is one, whatever its configuration says.
    """
    target = getattr(vllm_config.model_config, "hf_text_config", None)
    layers = getattr(target, "num_hidden_layers", 0) or 0
    if speculation is None or speculation.draft_loop is None:
        return layers, 0  # vLLM names the target where there is no draft model
    draft: Any = getattr(vllm_config.speculative_config, "draft_model_config", None)
    draft_layers = getattr(getattr(draft, "hf_config", None), "num_hidden_layers", 0) or 0
    # MiMo's layers for multi-token prediction are called none.
    return layers, max(1, draft_layers)


def capture_within_streams(
    wanted: Wanted, vllm_config: VllmConfig, speculation: Speculation | None
) -> Capture:
    """Choose the sizes of an engine on an NPU.

    Nothing tells whether the device is older than HDK 25.5.1. So there are more graphs than stock
    has only where an old one, too, has streams for them, by the estimates.

    Args:
        wanted: the engine as the planner reads it.
        vllm_config: of the engine.
        speculation: of the engine.

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
    speculation: Speculation,
    mode: str,
    sizes: Sequence[int],
    by_k: Mapping[int, Sequence[int]],
) -> str | None:
    """Return why an NPU cannot have graphs for K and for 0, or None.

    Args:
        vllm_config: of the engine.
        speculation: of the engine.
        mode: as for :func:`estimates_of`, like the rest.
        sizes: all that are captured, in tokens.
        by_k: those of them for each K; of fewer than two there is nothing to say.
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
    speculation: Speculation | None,
    mode: str,
    sizes: Sequence[int],
    by_k: Mapping[int, Sequence[int]],
) -> Estimates | None:
    """Return the estimates; None without graphs, or where the target's layers are not known.

    Args:
        vllm_config: of the engine.
        speculation: of the engine; None for none.
        mode: a key of :data:`vllm_ascend_spec.graphs.modes.MODES`.
        sizes: all that are captured, in tokens.
        by_k: those of them that decode batches of each K are replayed at whole; empty for none.
    """
    layers, draft_layers = layers_of(vllm_config, speculation)
    if not layers or not sizes:
        return None
    if speculation is not None and len(by_k) > 1:
        # Beside each graph of the target some of the draft, one for each number of its steps.
        draft_layers *= max(1, len(speculation.lengths_of_graphs))
    parallel = vllm_config.parallel_config
    several = (
        parallel.tensor_parallel_size > 1,
        parallel.data_parallel_size > 1,
        parallel.enable_expert_parallel,
    )
    cost = estimate(
        layers,
        draft_layers=draft_layers,
        hidden_size=getattr(vllm_config.model_config.hf_text_config, "hidden_size", 0),
        communication_domains=sum(several),
    )
    whole = sum(map(len, by_k.values()))
    decode = {size for row in by_k.values() for size in row}
    # Graphs of different K are different ones; with pieces these sizes are captured both ways.
    graphs = len(sizes) + whole - (0 if MODES[mode].has_pieces else len(decode))
    return Estimates(graphs, cost.bytes_of(graphs, max(sizes)), cost.streams_of(graphs))
