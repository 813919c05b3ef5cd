"""The CPU platform."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import vllm  # noqa: F401 - it looks for a platform while it is imported

from vllm_ascend_spec.platform.cpu import can_run_in_the_engine


@pytest.mark.parametrize(
    ("world_size", "threads", "expected"),
    [(1, "1", True), (1, "", False), (1, None, False), (2, "1", False)],
)
def test_a_worker_shares_the_engines_process_only_if_nothing_is_to_be_set_up(
    world_size: int, threads: str | None, expected: bool, monkeypatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if threads is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
    config = SimpleNamespace(parallel_config=SimpleNamespace(world_size=world_size))
    assert can_run_in_the_engine(config) is expected
