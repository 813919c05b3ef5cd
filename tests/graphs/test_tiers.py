"""Which graphs are for which K."""

from __future__ import annotations

import pytest

from vllm_ascend_spec.config.capture import set_sizes_by_k, sizes_by_k
from vllm_ascend_spec.graphs.capture import Wanted, capture_of
from vllm_ascend_spec.graphs.tiers import (
    sizes_of_tiers,
    tiers_of_drafts,
    tiers_of_schedule,
)

EVERY = tiers_of_drafts(8, [0, 1, 3])


def wanted(mode: str = "FULL_DECODE_ONLY", **changes: object) -> Wanted:
    """Return an engine whose K is 0, 1 or 3."""
    values = {"mode": mode, "max_num_seqs": 8, "tiers": EVERY, "stock": (4, 8, 16, 32), **changes}
    return Wanted(**values)  # type: ignore[arg-type]


def test_sizes_are_for_each_length_whose_requests_they_hold() -> None:
    found = sizes_of_tiers([8, 3, 12, 32, 4, 4], EVERY, 8)
    assert found == {0: (3, 4, 8), 1: (4, 8, 12), 3: (4, 8, 12, 32)}


def test_sizes_are_whole_requests_and_multiples_of_the_divisor() -> None:
    tiers = tiers_of_schedule(8, [[1, 4, 2], [5, 8, 1]])
    assert sizes_of_tiers(range(1, 25), tiers, 8, divisor=4) == {1: (4, 8, 12, 16), 2: (12, 24)}


def test_a_plan_says_which_graphs_are_for_which_length() -> None:
    found = capture_of(wanted())
    assert set(found.decode_by_k) == {0, 1, 3}
    for k, sizes in found.decode_by_k.items():
        assert all(size % (k + 1) == 0 for size in sizes)
        assert sizes[-1] == 8 * (k + 1)
    assert sorted({n for row in found.decode_by_k.values() for n in row}) == list(found.decode)


def test_each_length_may_have_as_many_graphs_as_stock_has_up_to_it() -> None:
    """Stock, with one length, has those of the longest."""
    found = capture_of(wanted(own=0))
    assert sum(map(len, found.decode_by_k.values())) == 2 + 3 + 4
    few = capture_of(wanted(graphs=4))
    assert sum(map(len, few.decode_by_k.values())) == 4


def test_each_of_few_batch_sizes_has_its_own_graph() -> None:
    found = capture_of(wanted())
    assert found.decode_by_k == {k: tuple((k + 1) * n for n in range(1, 9)) for k in (0, 1, 3)}
    assert found.expected_padding == 0
    # 32 in all, or as many as stock has if that is more.
    one = {"tiers": tiers_of_drafts(100, [3]), "max_num_seqs": 100}
    assert len(capture_of(wanted(**one)).decode) == 32
    many = tuple(range(8, 401, 8))
    assert len(capture_of(wanted(**one, stock=many)).decode) == 50


def test_so_have_graphs_of_pieces() -> None:
    """With K=4 and draft steps 2 to K on one row per request."""
    one = {"tiers": tiers_of_drafts(4, [4]), "max_num_seqs": 4, "stock": (1, 2, 8, 16)}
    assert capture_of(wanted("PIECEWISE", **one)).decode == (5, 10, 15, 20)
    drafts = capture_of(wanted("PIECEWISE", **one, draft_share=0.1))
    assert drafts.decode == (1, 2, 3, 4, 5, 10, 15, 20)


def test_graphs_of_pieces_are_for_all_lengths() -> None:
    assert capture_of(wanted("PIECEWISE")).decode_by_k == {}


def test_a_draft_in_pieces_has_one_row_for_each_request() -> None:
    one = {"tiers": tiers_of_drafts(8, [3]), "draft_has_pieces": True, "draft_share": 0.1}
    found = capture_of(wanted("FULL_AND_PIECEWISE", **one))
    assert found.draft_rows == {size: size // 4 for size in found.decode}
    shared = capture_of(wanted("FULL_AND_PIECEWISE", divisor=2, **one))
    assert shared.draft_rows == {size: size // 4 + size // 4 % 2 for size in shared.decode}
    for mode, change in (("FULL_DECODE_ONLY", {}), ("PIECEWISE", {}), ("FULL_AND_PIECEWISE", None)):
        less = one | ({"draft_share": 0.0} if change is None else change)
        assert capture_of(wanted(mode, **less)).draft_rows == {}


@pytest.mark.parametrize("sizes", [{}, {0: (1, 2), 3: (4,)}])
def test_the_worker_reads_what_was_laid_down(sizes: dict[int, tuple[int, ...]]) -> None:
    class Compilation:
        """Stands for vLLM's."""

    compilation = Compilation()
    if sizes:
        set_sizes_by_k(compilation, sizes)
    assert sizes_by_k(compilation) == sizes
