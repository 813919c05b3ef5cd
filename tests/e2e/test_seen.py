"""What can be seen of a server: its metrics, figures of each request, its page, the dashboard."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.docs.person import small_server
from tests.engines import ENGINE
from tests.marks import unless
from tests.metrics.dashboard import (
    DASHBOARDS,
    OF_PROMETHEUS,
    asked,
    filled,
    make,
    queries,
    read,
    variables,
)
from tests.metrics.prometheus_server import IS_MISSING, Prometheus
from tests.page.browser import MISSING, Browser, wait_for
from tests.zoo import SPECS, TARGET
from vllm_ascend_spec.bench.server import Server
from vllm_ascend_spec.metrics.acceptance import from_prometheus
from vllm_ascend_spec.metrics.prometheus import read_samples
from vllm_ascend_spec.metrics.step_metrics import METRICS
from vllm_ascend_spec.page.data import FIGURES
from vllm_ascend_spec.upstream import limits

pytestmark = unless(limits.NO_PAGE)

KEY = "a-key-of-this-test"
K = 3
SECTION = {"spec_page": True, "draft_length": "fixed"}
ARGUMENTS = (
    *("--dtype", "float32", "--max-model-len", "512", "--max-num-seqs", "4", "--enforce-eager"),
    *("--kv-cache-memory-bytes", str(ENGINE["kv_cache_memory_bytes"])),
    *("--per-request-spec-decode-metrics", "detailed"),
    *("--additional-config", json.dumps({"ascend_spec": SECTION})),
)

# What an eager engine has no samples of.
OF_GRAPHS = {
    metric.sample_name: {"engine", *metric.labels} for metric in METRICS if "graph" in metric.labels
}
OF_TREES = {
    metric.sample_name: {"engine", *metric.labels}
    for metric in METRICS
    if metric.name.startswith("vllm:spec_decode_tree_")
}
# This server has neither.
NOT_HERE = OF_GRAPHS | OF_TREES


def serve(*more: str) -> Server:
    return small_server(TARGET, SPECS["eagle"], (*ARGUMENTS, *more), VLLM_API_KEY=KEY)


@pytest.fixture(scope="module")
def server(prompts: list[str]) -> Iterator[Server]:
    with serve() as running:
        ask(running, prompts[0])
        yield running


def ask(server: Server, prompt: str) -> Any:
    """Return the answer to a prompt."""
    asked = {"model": TARGET, "prompt": prompt, "temperature": 0, "max_tokens": 40}
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0) as client:
        return client.completions.create(**asked, extra_body={"ignore_eos": True})


def get(server: Server, path: str, key: str | None = None) -> tuple[int, str]:
    """Return the status of a path, and what is there."""
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    request = urllib.request.Request(server.url + path, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def counted(server: Server, label: str) -> Mapping[str, Mapping[str, float]]:
    """Return the server's speculative metrics by name, and by the value of a label."""
    found: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for sample in read_samples(server.metrics(), "vllm:spec_decode_"):
        found[sample.name][sample.labels.get(label, "")] += sample.value
    return found


def test_ours_say_what_vllms_say(server: Server) -> None:
    """Each request is seen by both, from the first one on."""
    whole, by_k = from_prometheus(server.metrics()), counted(server, "k")
    requests = by_k["vllm:spec_decode_verified_requests_total"]
    tokens = by_k["vllm:spec_decode_verified_tokens_total"]
    assert set(requests) == {str(K)}
    assert sum(requests.values()) == whole.num_drafts > 0
    assert sum(tokens.values()) == whole.num_drafts + whole.num_accepted_tokens
    accepted = counted(server, "position")["vllm:spec_decode_position_accepted_total"]
    assert [accepted[str(place)] for place in range(K)] == list(whole.accepted_per_position)
    assert set(counted(server, "method")["vllm:spec_decode_position_drafts_total"]) == {"eagle"}


def test_where_a_steps_time_goes(server: Server) -> None:
    seconds = counted(server, "engine")
    names = ("step", "verification", "drafting")
    step, verification, drafting = (
        seconds[f"vllm:spec_decode_{name}_seconds_total"]["0"] for name in names
    )
    assert verification > 0
    assert drafting > 0
    assert verification + drafting < step


def test_nothing_is_wrong_with_acceptance(server: Server) -> None:
    found = counted(server, "engine")
    for name in ("acceptance_low", "acceptance_alarms_total", "drafting_paused"):
        assert found[f"vllm:spec_decode_{name}"] == {"0": 0}


def test_a_request_says_what_became_of_its_drafts(server: Server, prompts: list[str]) -> None:
    before = from_prometheus(server.metrics())
    answer = ask(server, prompts[1])
    told = answer.model_dump()["metrics"]["speculative_decoding"]
    accepted = from_prometheus(server.metrics()) - before
    assert told["num_spec_tokens"] == K
    assert told["num_spec_steps"] == accepted.num_drafts == len(told["per_step_accepted"])
    assert told["num_accepted_draft_tokens"] == accepted.num_accepted_tokens
    assert sum(told["per_step_accepted"]) == accepted.num_accepted_tokens
    assert told["mean_acceptance_length"] == pytest.approx(accepted.tokens_per_step)
    histogram = [told["per_step_accepted"].count(count) for count in range(K + 1)]
    assert told["acceptance_histogram"] == histogram


def test_the_page_is_behind_the_key_and_shows_the_metrics(server: Server) -> None:
    assert get(server, "/spec/data")[0] == 401
    assert get(server, "/spec/data", "wrong")[0] == 401
    status, page = get(server, "/spec")
    assert (status, "<title>" in page, KEY in page) == (200, True, False)
    status, text = get(server, "/spec/data", KEY)
    assert status == 200
    data = json.loads(text)
    assert data["speculation"] == {
        **{"method": "eagle", "max_k": K, "rule": "token", "lossless": True, "device": "cpu"}
    }
    check_figures(server, data["figures"])


def check_figures(server: Server, shown: Mapping[str, Any]) -> None:
    """Compare all that a page shows with ``/metrics``, while nothing runs."""
    values: dict[str, float] = defaultdict(float)
    for sample in read_samples(server.metrics(), "vllm:"):
        values[sample.name] += sample.value
    for name, figure in FIGURES.items():
        rows = shown[name]
        total = sum(row["value"] for row in rows) if figure.by else rows
        assert total == pytest.approx(values[figure.sample]), name
    assert shown["tokens"] > 0


@pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")
def test_a_browser_shows_it_in_both_languages(server: Server, prompts: list[str]) -> None:
    with Browser("--lang=en-US") as browser:
        browser.size(1200, 1000)
        browser.open(f"{server.url}/spec")
        wait_for(lambda: "API key" in browser.text("#ask"), "the page asks for the key")
        assert browser.text("#tokens") == "", "nothing is shown before"
        enter(browser, "\uff4b\uff45\uff59")
        assert "does not take this key" in browser.text("#notice"), "no header can hold it"
        enter(browser, "wrong")
        wait_for(lambda: "does not take this key" in browser.text("#notice"), "it was refused")
        enter(browser, KEY)
        wait_for(lambda: "Output tokens per second" in browser.text("#tokens"), "figures")
        assert browser.text("#ask") == ""
        assert "eagle" in browser.text("#about")
        before = shown_positions(browser)
        ask(server, prompts[2])
        wait_for(lambda: shown_positions(browser) != before, "a request changes the page")
        assert "last minute" in browser.text("#positions")
        assert browser.run("return document.querySelectorAll('svg path[d^=M]').length") > 3
        browser.run("document.getElementById('language').click()")
        assert "各位置的接受率" in browser.text("#positions")
        assert "固定" in browser.text("#lengths"), "reasons, too"
        assert browser.run("return document.documentElement.lang") == "zh"
        browser.size(360, 800)
        width = "return document.documentElement.scrollWidth <= window.innerWidth"
        wait_for(lambda: browser.run(width), "nothing sticks out of a phone")
        # A reload asks for no key again, and stays with the language.
        browser.open(f"{server.url}/spec")
        wait_for(lambda: "固定" in browser.text("#lengths"), "the tab knows both")


def enter(browser: Browser, key: str) -> None:
    """Type a key into the page's form, and send it."""
    script = "const form = document.querySelector('form'); form.querySelector('input').value = "
    browser.run(script + "arguments[0]; form.requestSubmit();", key)


def shown_positions(browser: Browser) -> str:
    return browser.text("#positions table")


def test_every_query_of_the_dashboard_finds_its_metrics_and_labels(server: Server) -> None:
    there: dict[str, set[str]] = {}
    for sample in read_samples(server.metrics(), "vllm:"):
        there.setdefault(sample.name, set()).update(sample.labels)
    missing = set()
    for expr, _ in queries(read(DASHBOARDS[0])):
        for found in asked(expr):
            # What is counted elsewhere is known all the same.
            labels = there.get(found.name) or NOT_HERE[found.name]
            missing |= {found.name} - there.keys()
            assert found.labels <= labels | OF_PROMETHEUS, found.name
    assert missing == set(NOT_HERE)


@pytest.mark.skipif(IS_MISSING, reason="not installed: prometheus")
def test_a_real_prometheus_answers_every_query(
    server: Server, prompts: list[str], tmp_path: Path
) -> None:
    with Prometheus(server.port, tmp_path) as prometheus:
        assert prometheus.wait("up") == [1.0]
        # A rate is of what is counted after the first scrape.
        for prompt in prompts[3:6]:
            ask(server, prompt)
        for expr, _ in queries(read(DASHBOARDS[0])):
            if any(found.name in NOT_HERE for found in asked(expr)):
                assert prometheus.ask("query", query=filled(expr))["result"] == []
            else:
                assert min(prometheus.wait(filled(expr, "5m"))) >= 0
        share = prometheus.wait(filled(make().share(make().TOKENS, make().REQUESTS), "5m"))
        assert 1 < share[0] <= K + 1
        for metric, label in variables(read(DASHBOARDS[0])):
            values = prometheus.ask(f"label/{label}/values", **{"match[]": metric})
            assert values == ["0" if label == "engine" else f"127.0.0.1:{server.port}"]


@pytest.mark.nightly
def test_several_api_servers_are_read_together(prompts: list[str]) -> None:
    with serve("--api-server-count", "2") as running:
        for prompt in prompts[:6]:
            ask(running, prompt)
        whole = from_prometheus(running.metrics())
        requests = counted(running, "k")["vllm:spec_decode_verified_requests_total"]
        assert sum(requests.values()) == whole.num_drafts > 0
        # Whichever of the two answers.
        for _ in range(4):
            assert get(running, "/spec/data")[0] == 401
            status, text = get(running, "/spec/data", KEY)
            assert status == 200
            check_figures(running, json.loads(text)["figures"])
