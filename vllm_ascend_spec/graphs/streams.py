"""Estimate the streams that graphs take on an old CANN.

Nothing here was measured. The streams follow the formula that vllm-ascend had until its change
9962, for a stack before HDK 25.5.1. There a capture fails with "207008" or "Alloc sq cq fail" once
no stream is left; on a newer stack no such limit is known
(``vllm_ascend/compilation/acl_graph.py:ACLGraphWrapper`` names the version).
"""

from __future__ import annotations

# Of 2048 streams, those that are left for graphs.
USABLE_STREAMS = 1920


def streams_each(layers: int, *, draft_layers: int = 0, communication_domains: int = 0) -> int:
    """Return the streams of one graph.

    Args:
        layers: number of layers of the target.
        draft_layers: layers of the draft model or head, whose steps are captured too; 0 for none.
        communication_domains: how many of tensor, data and expert parallelism are in use.
    """
    pieces = layers + 1 + (draft_layers + 1 if draft_layers else 0)
    return pieces * (1 + communication_domains)
