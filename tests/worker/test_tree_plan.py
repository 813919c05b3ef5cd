"""What is planned of a step's trees."""

from __future__ import annotations

import numpy as np

from vllm_ascend_spec.worker.tree_plan import mask_of


def test_a_row_sees_what_is_before_its_tree_and_its_own_path() -> None:
    # Two rows of text, the last of which is the root, and a tree: two siblings, one with a child.
    seen = ~mask_of((-1, -1, 1), num_rows=5, width=6)
    expected = [[0], [0, 1], [0, 1, 2], [0, 1, 3], [0, 1, 3, 4], [0, 1, 3, 4]]
    assert [np.flatnonzero(row).tolist() for row in seen] == expected
    chain = ~mask_of((), num_rows=3, width=3)
    assert chain.tolist() == np.tri(3, dtype=bool).tolist()
