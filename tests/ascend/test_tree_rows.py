"""What attention is told of a batch in which some requests have trees, and others have not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.marks import unless
from vllm_ascend_spec.upstream.limits import NO_TREES

pytestmark = unless(NO_TREES)
# A prompt's rows, a tree of two siblings, a chain, and a tree behind a row of its text.
PARENTS, NUM_DRAFTS, STARTS = [(), (-1, -1), (-1, 0), (-1, -1)], [0, 2, 2, 2], [0, 5, 8, 11, 15]
LENGTHS = [5, 40, 50, 60]


def described(parents: Any, num_drafts: Any, starts: Any, lengths: list[int]) -> Any:
    """Return the rows that attend along paths, and vllm-ascend's metadata."""
    from vllm_ascend_spec.worker.npu_tree_attention import ATTRIBUTE
    from vllm_ascend_spec.worker.npu_trees import NpuTreesMixin
    from vllm_ascend_spec.worker.tree_plan import StepTrees

    runner = NpuTreesMixin()
    runner.device, runner._tree_layers = torch.device("cpu"), {"layer": None}
    tables = torch.arange(len(lengths))[:, None]
    whole = SimpleNamespace(seq_lens_list=lengths, block_tables=tables)
    runner.attend_along_paths(
        ({"layer": whole}, None), torch.tensor([]), StepTrees(parents, starts, num_drafts)
    )
    return getattr(whole, ATTRIBUTE, None), whole


def test_the_texts_of_trees_are_read_once() -> None:
    """vllm-ascend's kernel attends for every row; of trees it reads no more than their rows."""
    rows, whole = described(PARENTS, NUM_DRAFTS, STARTS, LENGTHS)
    assert rows.rows.tolist() == [5, 6, 7, 12, 13, 14]
    assert rows.contexts == [37, 57]
    assert rows.block_table.flatten().tolist() == [1, 3]
    # The last one has a row that is left to that kernel.
    assert rows.others.seq_lens_list == [5, 3, 50, 60]
    assert whole.seq_lens_list == LENGTHS
    assert rows.others.block_tables is whole.block_tables


def test_a_batch_of_trees_alone_needs_one_part() -> None:
    rows, _ = described(PARENTS[1:2] * 2, [2, 2], [0, 3, 6], [40, 50])
    assert (rows.others, rows.rows) == (None, None)


@pytest.mark.parametrize("parents", [[()], [(-1, 0)]])
def test_chains_are_left_to_vllm_ascend(parents: Any) -> None:
    assert described(parents, [len(parents[0])], [0, 3], [40])[0] is None
