"""Estimate what graphs take of a device: memory on any CANN, and streams on an old one.

Nothing here was measured. The streams follow the formula that vllm-ascend had until its change
9962, for a stack before HDK 25.5.1. There a capture fails with "207008" or "Alloc sq cq fail" once
no stream is left; on a newer stack no such limit is known
(``vllm_ascend/compilation/acl_graph.py:ACLGraphWrapper`` names the version). The memory is modelled
like vLLM's own profile
(``vllm/v1/worker/gpu_model_runner.py:GPUModelRunner.profile_cudagraph_memory``): a pool that all
graphs share, as large as the largest one needs, and a part for each graph. Its two constants are
assumptions; figures from a log are better, and each of them can be given.
"""

from __future__ import annotations

from dataclasses import dataclass

from vllm_ascend_spec.graphs.k_buckets import check_count

# Streams of an old CANN: all of them, and those that are left for graphs.
STREAMS = 2048
USABLE_STREAMS = 1920
# Assumptions: bytes of one layer's captured tasks, and vectors of the hidden size alive at once.
BYTES_PER_LAYER = 256 * 1024
LIVE_VECTORS = 16
BYTES_PER_ELEMENT = 2


@dataclass(frozen=True)
class GraphCost:
    """Resources that captured graphs take.

    Attributes:
        streams: streams per graph on an old CANN.
        bytes_each: bytes per graph.
        bytes_per_token: bytes of the shared pool per token of the largest graph.
    """

    streams: int
    bytes_each: int
    bytes_per_token: int

    def bytes_of(self, graphs: int, largest: int) -> int:
        """Return the memory of ``graphs`` graphs in bytes; the largest has ``largest`` tokens."""
        return graphs * self.bytes_each + largest * self.bytes_per_token if graphs else 0

    def streams_of(self, graphs: int) -> int:
        """Return the number of streams that ``graphs`` graphs need on an old CANN."""
        return graphs * self.streams


def estimate(
    layers: int,
    *,
    draft_layers: int = 0,
    hidden_size: int = 0,
    communication_domains: int = 0,
    bytes_each: int | None = None,
    bytes_per_token: int | None = None,
) -> GraphCost:
    """Return the estimated cost of a model's graphs.

    Args:
        layers: number of layers of the target.
        draft_layers: layers of the draft model or head, whose steps are captured too; 0 for none.
        hidden_size: hidden size of the target; 0 leaves the shared pool out.
        communication_domains: how many of tensor, data and expert parallelism are in use.
        bytes_each: bytes per graph, if measured.
        bytes_per_token: bytes of the shared pool per token, if measured.

    Raises:
        ConfigError: a number is out of range.
    """
    check_count("layers", layers, 1)
    check_count("draft_layers", draft_layers, 0)
    check_count("hidden_size", hidden_size, 0)
    check_count("communication_domains", communication_domains, 0)
    if bytes_each is None:
        bytes_each = (layers + draft_layers) * BYTES_PER_LAYER
    if bytes_per_token is None:
        bytes_per_token = LIVE_VECTORS * hidden_size * BYTES_PER_ELEMENT
    check_count("bytes_each", bytes_each, 0)
    check_count("bytes_per_token", bytes_per_token, 0)
    pieces = layers + 1 + (draft_layers + 1 if draft_layers else 0)
    return GraphCost(pieces * (1 + communication_domains), bytes_each, bytes_per_token)
