"""Figures of runs made in turn."""

from __future__ import annotations

import pytest

from vllm_ascend_spec.bench.stats import Summary, paired_ratio


def test_summary() -> None:
    assert Summary.of([3.0, 1.0, 2.0]) == Summary(2.0, 1.0, 3.0)
    assert str(Summary.of([1.5])) == "1.50 (1.50-1.50)"


def test_a_drifting_machine_does_not_change_the_ratio() -> None:
    """Each pair ran under the same load, and candidate was twice as fast in each."""
    assert paired_ratio([200.0, 100.0, 50.0], [100.0, 50.0, 25.0]) == Summary(2.0, 2.0, 2.0)


def test_unpaired_runs_are_an_error() -> None:
    with pytest.raises(ValueError, match="zip"):
        paired_ratio([1.0, 2.0], [1.0])
