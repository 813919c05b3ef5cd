"""On how many rows draft steps ran."""

from __future__ import annotations

from typing import Any

from tests.ascend.matrix import Case, K, capture_sizes


def assert_one_row_each(case: Case, outcome: dict[str, Any]) -> None:
    """Draft steps 2 to K have one row per request.

    In a full graph what is recorded is what is replayed; ranks are watched after that.
    """
    ran = outcome["draft_rows_of"]["greedy"]
    assert ran
    if case.mode == "full_decode_only" and case.devices > 1:
        assert outcome["draft_graphs"]["full"] > outcome["draft_graphs"]["none"]
    elif case.mode == "full_decode_only":
        recorded = {rows[0]: rows[1:-1] for rows in outcome["draft_rows_at_start"] if rows[1:]}
        for size in capture_sizes(K):
            assert recorded[size] == [size // (K + 1)] * (K - 1)
        assert len(ran) * 2 < outcome["counters_of"]["greedy"]["vllm:spec_decode_num_drafts"]
    for _, *steps, num_reqs in (rows for rows in ran if len(rows) > 1):
        fitting = min(size for size in capture_sizes(K) if size >= num_reqs)
        allowed = {num_reqs, fitting} if case.mode == "default" else {num_reqs}
        assert len(steps) == K - 1
        assert set(steps) <= allowed
