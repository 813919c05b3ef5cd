"""Loads: named, from files, from metrics, and how tiers share them."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.graphs import batch_distribution as loads
from vllm_ascend_spec.graphs import distribution_metrics
from vllm_ascend_spec.graphs.batch_distribution import BatchDistribution, weights_of
from vllm_ascend_spec.graphs.distribution_file import read_histogram, read_step_times, read_text
from vllm_ascend_spec.graphs.tiers import tiers_of_drafts, tiers_of_schedule
from vllm_ascend_spec.metrics.prometheus import read_samples

ONE = tiers_of_drafts(8, [3])


def test_named_loads() -> None:
    assert loads.uniform(3).counts == (1, 1, 1)
    assert loads.zipf(4).counts == (1, 1 / 2, 1 / 3, 1 / 4)
    bell = loads.normal(80, 40, 12).counts
    assert max(bell) == bell[39] == 1
    assert bell[38] == pytest.approx(bell[40])
    # A mean outside still leaves the nearest batches.
    assert loads.normal(8, 4000, 12).counts[-1] == 1
    with pytest.raises(ConfigError, match="load"):
        loads.normal(8, 4, 0)


def test_weights_add_up_to_one_and_tiers_share_batches() -> None:
    tiers = tiers_of_drafts(4, [1, 3])
    weights = weights_of(BatchDistribution("x", (4.0, 0.0, 2.0, 2.0)), tiers, 4)
    assert weights == {1: (0.25, 0, 0.125, 0.125), 3: (0.25, 0, 0.125, 0.125)}
    schedule = tiers_of_schedule(4, [[1, 2, 3], [3, 4, 1]])
    weights = weights_of(loads.uniform(4), schedule, 4)
    assert weights == {1: (0, 0, 0.25, 0.25), 3: (0.25, 0.25, 0, 0)}


def test_counts_by_k_are_taken_as_they_are() -> None:
    tiers = tiers_of_drafts(2, [1, 3])
    weights = weights_of(BatchDistribution("x", by_k={3: (3.0, 1.0)}), tiers, 2)
    assert weights == {1: (0, 0), 3: (0.75, 0.25)}


@pytest.mark.parametrize(
    ("load", "words"),
    [
        (BatchDistribution("x", (1.0,)), ["1 batch sizes", "2, max_num_seqs"]),
        (BatchDistribution("x", (1.0, -1.0)), ["batches of 2", "0 or more"]),
        (BatchDistribution("x", (1.0, float("nan"))), ["batches of 2"]),
        (BatchDistribution("x", (0.0, 0.0)), ["no batch"]),
        (BatchDistribution("x", by_k={2: (1.0, 0.0)}), ["K=2", "no tier has", "tiers: 3"]),
    ],
)
def test_loads_that_say_nothing_are_refused(load: BatchDistribution, words: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        weights_of(load, tiers_of_drafts(2, [3]), 2)
    for word in words:
        assert word in str(refused.value)


def test_a_file_of_counts() -> None:
    text = "requests,count  # measured at noon\n\n1, 10\n3;5\n3 1e1\n# the end\n"
    load = read_histogram(text, "noon.csv", 4)
    assert load == BatchDistribution("noon.csv", (10, 0, 15, 0))


def test_a_file_of_counts_by_k() -> None:
    load = read_histogram("1 10 3\n2 5 3\n2 4 0\n", "x", 2)
    assert load.by_k == {3: (10, 5), 0: (0, 4)}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1 10\n2 many\n", ["x, line 2", "'many' is no number", "requests count"]),
        ("1 10\n2\n", ["x, line 2", "1 fields"]),
        ("1 10\n\n# a\n2 1 3\n", ["x, line 4", "3 numbers", "before 2"]),
        ("1 10\n9 1\n", ["x, line 2", "max_num_seqs=8"]),
        ("0 10\n", ["x, line 1", "1 to max_num_seqs=8"]),
        ("1.5 10\n", ["x, line 1"]),
        ("1 -1\n", ["x, line 1", "0 or more"]),
        ("1 nan\n", ["x, line 1", "'nan' is no number"]),
        ("1 5 2.5\n", ["x, line 1"]),
        ("requests count\n", ["no rows", "requests count"]),
        ("", ["no rows"]),
    ],
)
def test_a_file_that_is_none_is_refused_by_line(text: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        read_histogram(text, "x", 8)
    for word in words:
        assert word in str(refused.value)


def test_step_times() -> None:
    assert read_step_times("tokens,ms\n4,10\n64,18.5\n", "x") == [(4, 10), (64, 18.5)]
    for text, words in (
        ("4 10\n8 0\n", "x, line 2.*above 0"),
        ("4 ten\n", "x, line 1.*milliseconds"),
        ("# nothing\n", "no rows"),
    ):
        with pytest.raises(ConfigError, match=words):
            read_step_times(text, "x")


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path / "binary", tmp_path / "missing", tmp_path):
        with pytest.raises(ConfigError, match=r"--load=.*cannot be read"):
            read_text("--load", path)


def samples_of(*histograms: tuple[str, tuple[float, ...], dict, list[float]]) -> list:
    """Return the samples of histograms: name, buckets, labels, observations."""
    registry = CollectorRegistry()
    made: dict[str, Histogram] = {}
    for name, buckets, labels, values in histograms:
        if name not in made:
            made[name] = Histogram(name, "x", list(labels), buckets=buckets, registry=registry)
        series = made[name].labels(**labels)
        for value in values:
            series.observe(value)
    return list(read_samples(generate_latest(registry).decode(), "vllm:"))


def test_live_counts_by_requests_and_k() -> None:
    buckets = (1, 2, 4, 8)
    samples = samples_of(
        (distribution_metrics.REQUESTS, buckets, {"k": "3", "engine": "0"}, [1, 1, 3]),
        (distribution_metrics.REQUESTS, buckets, {"k": "3", "engine": "1"}, [2]),
        (distribution_metrics.REQUESTS, buckets, {"k": "1", "engine": "0"}, [8, 100]),
    )
    with pytest.raises(ConfigError, match="9 requests and more"):
        distribution_metrics.load_of(samples, "server", tiers_of_drafts(8, [1, 3]), 8)
    load = distribution_metrics.load_of(samples, "server", tiers_of_drafts(16, [1, 3]), 16)
    assert load.by_k is not None
    assert load.by_k[3][:5] == (2, 1, 0.5, 0.5, 0)
    assert load.by_k[1][4:8] == (0.25, 0.25, 0.25, 0.25)
    assert load.by_k[1][8:] == (0.125,) * 8
    assert load.name == "vllm:spec_decode_batch_requests of server"


def test_live_counts_without_k() -> None:
    samples = samples_of((distribution_metrics.REQUESTS, (1, 2), {"engine": "0"}, [1, 2, 2]))
    assert distribution_metrics.load_of(samples, "s", ONE, 2).counts == (1, 2)


def test_vllms_tokens_by_step_where_there_is_nothing_better() -> None:
    values = [4, 4, 12, 500]
    samples = samples_of((distribution_metrics.TOKENS, (1, 8, 16, 32, 64), {"engine": "0"}, values))
    load = distribution_metrics.load_of(samples, "server", ONE, 8)
    # (1, 8] tokens are 1 or 2 requests with K=3, (8, 16] are 3 or 4; 500 is a prefill.
    assert load.counts == (1, 1, 0.5, 0.5, 0, 0, 0, 0)
    assert "vllm:iteration_tokens_total of server" in load.name
    assert "without 25% of steps" in load.name
    with pytest.raises(ConfigError, match="does not show K"):
        distribution_metrics.load_of(samples, "server", tiers_of_drafts(8, [1, 3]), 8)


def test_a_server_without_counts_is_refused() -> None:
    samples = samples_of((distribution_metrics.TOKENS, (1, 8), {"engine": "0"}, []))
    for found in (samples, []):
        with pytest.raises(ConfigError, match=distribution_metrics.REQUESTS):
            distribution_metrics.load_of(found, "server", ONE, 8)
