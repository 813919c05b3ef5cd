"""Acceptance is read from vLLM's counters, as a server and as an engine give them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from vllm_ascend_spec.metrics.acceptance import AcceptanceCounts, from_engine, from_prometheus

LABELS = 'engine="0",model_name="m"'
TEXT = f"""# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{{{LABELS}}} 10.0
vllm:spec_decode_num_drafts_created{{{LABELS}}} 1.795e+09
vllm:spec_decode_num_draft_tokens_total{{{LABELS}}} 30.0
vllm:spec_decode_num_accepted_tokens_total{{{LABELS}}} 18.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{{{LABELS},position="1"}} 6.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{{{LABELS},position="0"}} 8.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{{{LABELS},position="2"}} 4.0
vllm:spec_decode_num_accepted_tokens_per_pos_created{{{LABELS},position="2"}} 1.795e+09
vllm:generation_tokens_total{{{LABELS}}} 99.0
"""


def test_server_metrics() -> None:
    accepted = from_prometheus(TEXT)
    assert accepted == AcceptanceCounts(10, 30, 18, (8, 6, 4))
    assert accepted.tokens_per_step == pytest.approx(2.8)
    assert accepted.rate == pytest.approx(0.6)
    assert accepted.per_position == pytest.approx([0.8, 0.6, 0.4])


def test_large_counts_are_written_with_an_exponent() -> None:
    line = f"vllm:spec_decode_num_drafts_total{{{LABELS}}} 1.25e+07"
    assert from_prometheus(line).num_drafts == 12_500_000


def test_several_engines_add_up() -> None:
    other = TEXT.replace('engine="0"', 'engine="1"')
    assert from_prometheus(TEXT + other) == AcceptanceCounts(20, 60, 36, (16, 12, 8))


def test_a_server_without_speculation_has_none() -> None:
    accepted = from_prometheus("vllm:generation_tokens_total{} 99.0\n")
    assert accepted == AcceptanceCounts()
    assert accepted.tokens_per_step is None
    assert accepted.rate is None
    assert accepted.per_position == []


def test_engine_metrics() -> None:
    metrics = [
        SimpleNamespace(name="vllm:spec_decode_num_drafts", value=10),
        SimpleNamespace(name="vllm:spec_decode_num_draft_tokens", value=30),
        SimpleNamespace(name="vllm:spec_decode_num_accepted_tokens", value=18),
        SimpleNamespace(name="vllm:spec_decode_num_accepted_tokens_per_pos", values=[8, 6, 4]),
        SimpleNamespace(name="vllm:num_preemptions", value=3),
        # A histogram; an engine with graphs has this one.
        SimpleNamespace(
            name="vllm:spec_decode_batch_requests", count=9, sum=30.0, buckets={"1": 2}
        ),
    ]
    assert from_engine(metrics) == from_prometheus(TEXT)


def test_difference_of_two_snapshots() -> None:
    before = AcceptanceCounts(4, 12, 6, (3, 2, 1))
    assert from_prometheus(TEXT) - before == AcceptanceCounts(6, 18, 12, (5, 4, 3))
    assert from_prometheus(TEXT) - AcceptanceCounts() == from_prometheus(TEXT)
