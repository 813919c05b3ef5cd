"""Figures of a load."""

from __future__ import annotations

import pytest

from vllm_ascend_spec.bench.client import Answer, Load, Result


def test_throughput_and_time_per_token() -> None:
    answers = (Answer((1, 2, 3), "abc", 0.5, 1.5), Answer((4, 5), "de", 0.1, 0.3))
    result = Result(answers, wall_s=2.0)
    assert result.num_tokens == 5
    assert result.tokens_per_s == 2.5
    # (1.0 s / 2 tokens + 0.2 s / 1 token) / 2 requests
    assert result.time_per_output_token_ms == pytest.approx(350.0)


def test_load_names_itself() -> None:
    assert Load(["a"], 8).name == "batch 1, greedy"
    assert Load(["a"], 8, temperature=0.8, concurrency=8).name == "batch 8, T=0.8"
