"""Replay parameters of multi-head latent attention (MLA) in a full graph of all draft steps.

vllm-ascend keeps them outside of the graph, by the number of rows
(``vllm_ascend/compilation/acl_graph.py:GraphParams``). A step appends its own at capture, and a
replay sets those of step 1's number of rows (``AscendMLAImpl.update_graph_params``). Our draft
steps 2 to K have fewer rows, so they have to be sent to the same place.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from vllm_ascend.compilation import acl_graph

if TYPE_CHECKING:
    import torch


@contextmanager
def belonging_to_graph(graph_rows: int, step_rows: int) -> Iterator[None]:
    """Let what a draft step with fewer rows captures belong to the graph of all steps.

    Args:
        graph_rows: number of rows of draft step 1, by which the graph is replayed.
        step_rows: number of rows of the steps that are captured meanwhile.
    """
    kept = acl_graph._draft_graph_params
    if kept is None or graph_rows == step_rows:
        yield
        return
    own = acl_graph.GraphParams(
        events={step_rows: kept.events[graph_rows]},
        workspaces={},
        handles={step_rows: kept.handles[graph_rows]},
        attn_params={step_rows: kept.attn_params[graph_rows]},
    )
    acl_graph._draft_graph_params = own
    try:
        yield
    finally:
        acl_graph._draft_graph_params = kept
    # A replay has one workspace for all steps. Fewer rows may want more, if keys are split.
    found = [kept.workspaces[graph_rows], own.workspaces.get(step_rows)]
    kept.workspaces[graph_rows] = max(found, key=size_of)


def size_of(workspace: torch.Tensor | None) -> int:
    """Return the number of bytes of a workspace, 0 if there is none."""
    return 0 if workspace is None else workspace.numel() * workspace.element_size()
