"""A graph is captured with the metadata that it is replayed with."""

from __future__ import annotations

import copy
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm.config import CUDAGraphMode

WIDEST = 8
NUM_DRAFTS = 3


class Stock:
    """The part of vllm-ascend's proposer around the two hooks: it describes the first step."""

    def _common_attn_metadata_for_draft_group(
        self, metadata: Any, attn_group: Any, num_input_tokens: int, draft_index: int = 0
    ) -> Any:
        return metadata

    def _prepare_dcp_draft_dummy_metadata(self, metadata: Any, draft_index: int) -> None:
        raise AssertionError("vllm-ascend's own loop is asked")

    def attn_update_stack_num_spec_norm(self: Any, *arguments: Any) -> Any:
        return self.build_next(*arguments)

    def _maybe_update_metadata(self: Any, att_backend: Any, metadata: list[Any]) -> None:
        self.noted = metadata

    def _update_full_graph_params(
        self: Any, forward_context: Any, num_tokens: int, draft_attn_metadatas: Any = None
    ) -> None:
        self.noted = draft_attn_metadatas


@pytest.fixture
def proposer() -> Any:
    from vllm_ascend_spec.methods.loops.ascend.metadata import LaterStepMetadataMixin

    made: Any = type("Proposer", (LaterStepMetadataMixin, Stock), {})()
    made.uses_own_loop, made.tree = True, None
    made.runner = SimpleNamespace(uniform_decode_query_len=NUM_DRAFTS + 1)
    made.arange = torch.arange(64, dtype=torch.int32)
    made.query_start_loc_group = [torch.full((WIDEST + 1,), -7, dtype=torch.int32)] * NUM_DRAFTS
    made.seq_lens_group = [torch.arange(WIDEST, dtype=torch.int32) + 20] * NUM_DRAFTS
    return made


def first_step(num_reqs: int) -> Any:
    """Return metadata of K+1 rows for each request."""
    rows = num_reqs * (NUM_DRAFTS + 1)
    return SimpleNamespace(
        num_reqs=num_reqs,
        num_actual_tokens=rows,
        num_input_tokens=rows,
        max_query_len=NUM_DRAFTS + 1,
        query_start_loc_cpu=torch.arange(0, rows + 1, NUM_DRAFTS + 1, dtype=torch.int32),
        query_start_loc=torch.arange(0, rows + 1, NUM_DRAFTS + 1, dtype=torch.int32),
        seq_lens=torch.zeros(num_reqs, dtype=torch.int32),
        block_table_tensor=torch.zeros((WIDEST, 5), dtype=torch.int32),
    )


def captured(proposer: Any, num_reqs: int, draft_index: int) -> Any:
    metadata = first_step(num_reqs)
    for index in range(1, draft_index + 1):
        metadata = copy.copy(metadata)
        proposer._prepare_dcp_draft_dummy_metadata(metadata, index)
    return metadata


def replayed(proposer: Any, num_reqs: int, draft_index: int) -> Any:
    metadata = first_step(num_reqs)
    # What vllm-ascend has set before it asks.
    metadata.num_actual_tokens = num_reqs
    return proposer._common_attn_metadata_for_draft_group(metadata, None, num_reqs, draft_index)


@pytest.mark.parametrize("draft_index", [1, 2])
@pytest.mark.parametrize("num_reqs", [1, 4, WIDEST])
def test_both_describe_one_row_each(proposer: Any, num_reqs: int, draft_index: int) -> None:
    one, other = (f(proposer, num_reqs, draft_index) for f in (captured, replayed))
    assert vars(one).keys() == vars(other).keys()
    for name, value in vars(one).items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(value, vars(other)[name]), name
        else:
            assert value == vars(other)[name], name
    # A graph reads the buffers that it was captured with.
    for name in ("query_start_loc", "seq_lens"):
        assert getattr(one, name).data_ptr() == getattr(other, name).data_ptr()
    assert one.query_start_loc.tolist() == list(range(num_reqs + 1))
    assert (one.max_query_len, one.num_input_tokens) == (1, num_reqs)


@pytest.mark.parametrize("has_mrope", [False, True])
def test_slots_of_later_steps_go_by_places(proposer: Any, has_mrope: bool) -> None:
    """vllm-ascend computes them from what it is given, counting up; of M-RoPE that is too low."""
    given: list[Any] = []
    proposer.build_next = lambda *arguments: given.append(arguments) or arguments[1]
    proposer.vllm_config = SimpleNamespace(model_config=SimpleNamespace(uses_mrope=has_mrope))
    proposer.use_async_scheduling = True
    metadata = first_step(2)
    metadata.seq_lens = torch.tensor([7, 20, 0], dtype=torch.int32)
    positions = torch.tensor([[3, 19]] * 3, dtype=torch.int32)
    for draft_index in (1, 2):
        proposer.attn_update_stack_num_spec_norm(
            draft_index, metadata, 2, 2, positions, CUDAGraphMode.NONE
        )
    assert positions.tolist() == ([[6, 19]] * 3 if has_mrope else [[3, 19]] * 3)
    assert [arguments[0] for arguments in given] == [1, 2]
    assert all(arguments[4] is positions for arguments in given)


@pytest.mark.parametrize("num_steps", [1, 3])
def test_a_replay_updates_the_passes_of_a_tree_in_their_order(
    proposer: Any, num_steps: int
) -> None:
    """Those of equal depth share metadata; a graph has captured them one after the other."""
    from vllm_ascend_spec.config.tree_shape import in_order
    from vllm_ascend_spec.methods.loops.base import DraftLoopMixin
    from vllm_ascend_spec.methods.tree_drafts import TreeDrafts

    tree = in_order([(0,), (0, 0), (0, 0, 0), (1,), (1, 0), (1, 0, 0), (1, 1)])
    by_depth = [{"layer": f"metadata {depth}"} for depth in range(num_steps)]
    for drafts, depths in (
        (None, list(range(num_steps))),
        # After (), (0,), (0, 0), (1,) and (1, 0); the graph of one step has no other pass.
        (TreeDrafts.by_node(tree), [0, 1, 2, 1, 2] if num_steps > 1 else [0]),
    ):
        proposer.tree = drafts
        proposer.later_passes = partial(DraftLoopMixin.later_passes, proposer)
        expected = [by_depth[depth] for depth in depths]
        proposer._maybe_update_metadata(None, by_depth)
        assert proposer.noted == expected
        proposer._update_full_graph_params(None, 3, by_depth)
        assert proposer.noted == expected


def test_the_first_step_is_left_as_it_is(proposer: Any) -> None:
    metadata = first_step(4)
    proposer._prepare_dcp_draft_dummy_metadata(metadata, 0)
    proposer._common_attn_metadata_for_draft_group(metadata, None, 16, 0)
    assert vars(metadata).keys() == vars(first_step(4)).keys()
    assert (metadata.num_input_tokens, metadata.max_query_len) == (16, NUM_DRAFTS + 1)


def test_vllm_asks_the_hooks_with_these_names() -> None:
    import inspect

    from vllm_ascend.spec_decode.llm_base_proposer import AscendSpecDecodeBaseProposer as Base

    from vllm_ascend_spec.methods.loops.ascend.metadata import LaterStepMetadataMixin as Ours

    for name in (
        "_common_attn_metadata_for_draft_group",
        "_prepare_dcp_draft_dummy_metadata",
        "_maybe_update_metadata",
        "_update_full_graph_params",
    ):
        ours, theirs = (inspect.signature(getattr(owner, name)) for owner in (Ours, Base))
        assert list(ours.parameters) == list(theirs.parameters)
