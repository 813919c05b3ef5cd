"""The rule beside the acceptance counters: set, replaced, read back from every place."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client import Gauge as PrometheusGauge
from vllm.v1.metrics.prometheus import unregister_vllm_metrics
from vllm.v1.metrics.reader import Gauge, get_metrics_snapshot

from tests.speculation import make_speculation
from vllm_ascend_spec import log
from vllm_ascend_spec.config.resolved import SpecConfig
from vllm_ascend_spec.metrics import rule as rule_module
from vllm_ascend_spec.metrics.rule import (
    NAME,
    RuleCollector,
    announce_rule,
    note_on_rule,
    publish_rule,
    rule_from_engine,
    rule_from_prometheus,
)

LOSSLESS = {"token": "true", "block": "true", "synthetic": "false"}


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    """Leave the process's gauge as it was, for engines of other tests."""
    before = rule_module._collector().rule
    publish_rule(None)
    yield
    publish_rule(before)


def published() -> list[Gauge]:
    """Return what ``LLM.get_metrics()`` has of the rule."""
    return [metric for metric in get_metrics_snapshot() if metric.name == NAME]


def scraped() -> list[str]:
    """Return what ``/metrics`` has of the rule."""
    from prometheus_client import REGISTRY

    text = generate_latest(REGISTRY).decode()
    return [line for line in text.splitlines() if line.startswith(NAME)]


@pytest.mark.parametrize("rule", LOSSLESS)
def test_rule_is_read_back(rule: str) -> None:
    publish_rule(rule)
    assert published() == [Gauge(NAME, {"rule": rule, "lossless": LOSSLESS[rule]}, 1.0)]
    assert scraped() == [f'{NAME}{{lossless="{LOSSLESS[rule]}",rule="{rule}"}} 1.0']
    assert rule_from_engine(get_metrics_snapshot()) == rule
    assert rule_from_prometheus("\n".join(["x 1.0", *scraped(), "y 2.0"])) == rule


def test_a_later_rule_replaces_the_one_before() -> None:
    for rule in ("token", "synthetic", "synthetic", "block", "token"):
        publish_rule(rule)
        (metric,) = published()
        assert metric.labels["rule"] == rule


def test_an_engine_without_speculation_takes_it_away() -> None:
    publish_rule("synthetic")
    publish_rule(None)
    assert published() == scraped() == []
    assert rule_from_engine(get_metrics_snapshot()) is None
    publish_rule("synthetic")
    assert len(published()) == 1


def test_it_outlives_vllms_clearing_of_its_own_metrics() -> None:
    """vLLM does that when its loggers start, which is after the platform published the rule."""
    stock = PrometheusGauge("vllm:of_the_same_kind", "a metric of vLLM's")
    publish_rule("block")
    unregister_vllm_metrics()
    names = [metric.name for metric in get_metrics_snapshot()]
    assert stock._name not in names
    assert rule_from_engine(get_metrics_snapshot()) == "block"
    assert len(scraped()) == 1


def test_nothing_is_said_before_it_is_known() -> None:
    assert rule_from_prometheus("") is None
    assert rule_from_engine([]) is None
    other = [SimpleNamespace(name="vllm:spec_decode_num_drafts", labels={}, value=1)]
    assert rule_from_engine(other) is None


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (f'{NAME}{{rule="block",lossless="true"}} 1.0', "block"),
        (f'{NAME}{{engine="0",lossless="true",pid="7",rule="block"}} 1.0', "block"),
        (f'{NAME}{{lossless="true",rule="block"}} 0.0', None),
        (f'{NAME}{{lossless="true",other_rule="block"}} 1.0', None),
        (f'{NAME}_created{{lossless="true",rule="block"}} 1.0', None),
        (f'# HELP {NAME} rule="block"', None),
    ],
)
def test_lines_of_a_server(line: str, expected: str | None) -> None:
    assert rule_from_prometheus(f"a 1.0\n{line}\nb 1.0") == expected
    found = rule_from_prometheus(f'{line}\n{NAME}{{lossless="false",rule="synthetic"}} 1.0')
    assert found == (expected or "synthetic")


def test_gauges_that_are_zero_are_not_the_rule() -> None:
    metrics = [Gauge(NAME, {"rule": "token"}, 0.0), Gauge(NAME, {"rule": "block"}, 1.0)]
    assert rule_from_engine(metrics) == "block"


SEVERAL_SERVERS = """
import os, sys
from prometheus_client import CollectorRegistry, generate_latest, multiprocess
from vllm_ascend_spec.metrics.rule import publish_rule
publish_rule("block")
publish_rule("block")
if os.fork() == 0:
    publish_rule("block")
    os._exit(0)
os.wait()
registry = CollectorRegistry()
multiprocess.MultiProcessCollector(registry)
sys.stdout.write(generate_latest(registry).decode())
"""


def test_several_api_servers_say_it_once(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where vLLM runs several, metrics go through files, which ``/metrics`` puts together."""
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    command = [sys.executable, "-W", "error", "-c", SEVERAL_SERVERS]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 0, result.stderr
    assert [line for line in result.stdout.splitlines() if line.startswith(NAME)] == [
        f'{NAME}{{lossless="true",rule="block"}} 1.0'
    ]
    assert rule_from_prometheus(result.stdout) == "block"


def test_a_collector_is_registered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    import prometheus_client

    registry = CollectorRegistry(auto_describe=True)
    monkeypatch.setattr(prometheus_client, "REGISTRY", registry)
    collector = RuleCollector()
    assert list(registry.collect()) == []
    collector.set("token")
    assert [metric.name for metric in registry.collect()] == [NAME]


@pytest.mark.parametrize(
    ("speculation", "rule", "words"),
    [
        (None, None, ()),
        (make_speculation(), "token", ()),
        (make_speculation(rule="block"), "block", ()),
        (make_speculation(rule="synthetic", warnings=("not lossless",)), "synthetic", ("not los",)),
        (make_speculation(warnings=("one", "two")), "token", ("one", "two")),
    ],
    ids=["none", "token", "block", "synthetic", "two warnings"],
)
def test_an_engine_announces_its_rule(
    speculation: SpecConfig | None,
    rule: str | None,
    words: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logged: list[tuple[int, str]] = []
    monkeypatch.setattr(rule_module, "log_once", lambda *arguments: logged.append(arguments))
    announce_rule(speculation)
    assert rule_from_engine(get_metrics_snapshot()) == rule
    assert [level for level, _ in logged] == [logging.WARNING] * len(words)
    assert all(word in message for word, (_, message) in zip(words, logged, strict=True))


def test_warnings_are_logged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    logger = SimpleNamespace(log=lambda level, message: said.append(message))
    monkeypatch.setattr(log, "logging", SimpleNamespace(getLogger=lambda name: logger))
    log.log_once.cache_clear()
    for _ in range(3):
        announce_rule(make_speculation(warnings=("for benchmarks only",)))
    assert len(said) == 1
    log.log_once.cache_clear()


@pytest.mark.parametrize(
    ("rule", "note"),
    [
        (None, ""),
        ("token", ""),
        ("block", " (block rule)"),
        ("synthetic", " (synthetic, not lossless)"),
    ],
)
def test_note_for_tables(rule: str | None, note: str) -> None:
    assert note_on_rule(rule) == note
