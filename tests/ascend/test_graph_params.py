"""What a draft step with fewer rows captures is replayed with the graph of all draft steps.

The engines are those of test_mla.py, whose drafts in a full graph are those without one.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.marks import unless
from vllm_ascend_spec.upstream.limits import NO_LOOP_ON_NPU

pytestmark = unless(NO_LOOP_ON_NPU)
# Step 1 of three requests with three drafts, and of twelve with none: both are captured.
SIZES, GRAPH, STEP = (3, 12), 12, 3


@pytest.fixture
def params(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return vllm-ascend's parameters of the drafts' graphs, of which nothing is captured yet."""
    from vllm_ascend.compilation import acl_graph

    monkeypatch.setattr(acl_graph, "_draft_graph_params", None)
    acl_graph.set_draft_graph_params(list(SIZES))
    return acl_graph.get_draft_graph_params()


def capture(rows: int, layer: str, nbytes: int = 8) -> None:
    """Do what a layer does at capture (mla_v1.py:AscendMLAImpl._forward_decode)."""
    from vllm_ascend.compilation import acl_graph

    params = acl_graph.get_draft_graph_params()
    params.events[rows].append(f"event of {layer}")
    if params.workspaces.get(rows) is None:
        workspace = torch.empty(nbytes, dtype=torch.uint8)
        acl_graph.update_draft_graph_params_workspaces(rows, workspace)
    params.attn_params[rows].append(layer)
    params.handles[rows].append(f"handle of {layer}")


def test_steps_of_other_widths_would_be_lost_or_mixed(params: Any) -> None:
    """Why: by the number of rows, a later step is another graph's, or of none at all."""
    capture(GRAPH, "step 1")
    capture(STEP, "step 2")
    assert params.attn_params == {GRAPH: ["step 1"], STEP: ["step 2"]}
    with pytest.raises(KeyError):
        capture(STEP - 1, "step 2 of two requests")


def test_every_step_belongs_to_the_graph(params: Any) -> None:
    from vllm_ascend.compilation import acl_graph

    from vllm_ascend_spec.methods.loops.ascend.graph_params import belonging_to_graph

    capture(STEP, "another graph's step 1")
    capture(GRAPH, "step 1")
    with belonging_to_graph(GRAPH, STEP):
        capture(STEP, "step 2")
        capture(STEP, "step 3")
    assert acl_graph.get_draft_graph_params() is params
    assert params.attn_params[GRAPH] == ["step 1", "step 2", "step 3"]
    assert params.handles[GRAPH] == [f"handle of step {step}" for step in (1, 2, 3)]
    assert params.events[GRAPH] == [f"event of step {step}" for step in (1, 2, 3)]
    assert params.attn_params[STEP] == ["another graph's step 1"]


@pytest.mark.parametrize("nbytes", [2, 32])
def test_the_largest_workspace_is_kept(nbytes: int, params: Any) -> None:
    """A replay has one for all steps."""
    from vllm_ascend_spec.methods.loops.ascend.graph_params import belonging_to_graph

    capture(GRAPH, "step 1")
    with belonging_to_graph(GRAPH, STEP):
        capture(STEP, "step 2", nbytes)
    assert params.workspaces[GRAPH].numel() == max(8, nbytes)
    assert params.workspaces[STEP] is None


def test_without_graphs_there_is_nothing_to_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm_ascend.compilation import acl_graph

    from vllm_ascend_spec.methods.loops.ascend.graph_params import belonging_to_graph

    monkeypatch.setattr(acl_graph, "_draft_graph_params", None)
    with belonging_to_graph(GRAPH, STEP):
        assert acl_graph.get_draft_graph_params() is None
