"""What benchmarks write down: acceptance never without the rule that made it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.benchmarks import propose, step
from tests.benchmarks.interleaved import Clock
from vllm_ascend_spec.bench import serve
from vllm_ascend_spec.bench.client import ClientLoad, LoadResult, ServerAnswer
from vllm_ascend_spec.bench.peer import Peer
from vllm_ascend_spec.metrics.acceptance import AcceptanceCounts
from vllm_ascend_spec.metrics.rule import NAME

ACCEPTED = AcceptanceCounts(10, 30, 18, (8, 6, 4))
NOTES = {
    None: "",
    "token": "",
    "block": " (block rule)",
    "synthetic": " (synthetic, not lossless)",
}


@pytest.mark.parametrize("rule", NOTES)
def test_acceptance_names_its_rule(rule: str | None) -> None:
    assert serve.acceptance_record(ACCEPTED, rule) == {
        "rule": rule,
        "tokens_per_step": 2.8,
        "per_position": [0.8, 0.6, 0.4],
        "drafts": 10,
    }
    assert serve.acceptance_record(AcceptanceCounts(), rule)["tokens_per_step"] is None


class Served:
    """A server that answers at once."""

    url = "http://127.0.0.1:0"

    def __init__(self, *rules: str) -> None:
        self.text = "".join(f'{NAME}{{lossless="x",rule="{rule}"}} 1.0\n' for rule in rules)

    def metrics(self) -> str:
        return self.text


@pytest.mark.parametrize("rule", ["token", "synthetic"])
def test_bench_serve_asks_the_server_for_the_rule(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = LoadResult((ServerAnswer((1, 2), "ab", 0.1, 0.2),), wall_s=1.0)
    monkeypatch.setattr(serve, "run_load", lambda *_: result)
    plan, load, found = (
        serve.ServeBenchConfig("model", {}, (), rounds=1),
        ClientLoad(["a"], 2),
        serve.ServeResults(),
    )
    servers: Any = {serve.CANDIDATE: Served(rule), serve.NONE: Served()}
    serve._pass(plan.model, load, servers, 0, found)
    row = {"mode": "eager", **serve._row(plan, load, found)}
    assert row["acceptance"]["rule"] == rule
    assert f"None tokens/step{NOTES[rule]}  identical: 1 of 1" in serve.format_row(row)


def test_bench_serve_starts_all_servers_in_each_round_and_asks_them_in_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    peer = Peer(Path("python"), {"vllm": "0.33.0"}, plugins=("ascend_spec",))
    theirs = "vLLM 0.33.0 with this package"

    def run_load(url: str, model: str, load: ClientLoad) -> LoadResult:
        asked.append(url)
        return LoadResult(
            (ServerAnswer((1, 2), "ab", 0.1, 0.2),), wall_s=1.0 if url == theirs else 0.5
        )

    @contextmanager
    def servers(plan: serve.ServeBenchConfig, mode: str, index: int) -> Iterator[Any]:
        asked.append("start")
        names = (serve.CANDIDATE, serve.NONE, *(peer.name for peer in plan.peers))
        yield {name: SimpleNamespace(url=name, metrics=Served().metrics) for name in names}

    monkeypatch.setattr(serve, "run_load", run_load)
    monkeypatch.setattr(serve, "_servers", servers)
    plan = serve.ServeBenchConfig(
        "m", {}, (ClientLoad(["a"], 2),), modes=("eager",), rounds=2, peers=(peer,)
    )
    record = serve.run(plan, lambda line: None)
    order = [serve.CANDIDATE, serve.NONE, theirs]
    assert asked == ["start", *order, *order, "start", *order, *reversed(order)]
    assert record["peers"] == {theirs: {"vllm": "0.33.0"}}
    (row,) = record["results"]
    assert row["ours_to_peers"][theirs]["median"] == 2.0
    assert f"x2.00 (2.00-2.00) of {theirs}" in serve.format_row({"mode": "eager", **row})


@pytest.mark.parametrize(
    ("method", "names"),
    [
        ("eagle", (step.NONE, step.BEFORE, step.AFTER)),
        ("draft_model", (step.NONE, step.BEFORE, step.AFTER)),
        ("ngram", (step.NONE, step.WITHOUT_LOOP)),
        ("custom_class", (step.NONE, step.WITHOUT_LOOP)),
    ],
)
def test_bench_step_compares_draft_loops_where_there_are_any(
    method: str, names: tuple[str, ...]
) -> None:
    assert step.configurations({"method": method}) == names
    none, *others = names
    assert step.configurations({"method": method}, idle=True) == (none, step.IDLE, *others)
    if step.AFTER in names:
        more = (none, step.BEFORE, step.MODULES, step.AFTER)
        assert step.configurations({"method": method}, modules=True) == more


@pytest.mark.parametrize("rule", NOTES)
def test_the_table_of_bench_step_ends_in_the_rule(rule: str | None) -> None:
    one = {"median": 1.0, "low": 1.0, "high": 1.0}
    figures = {"ms_per_step": one, "tokens_per_s": one, "parts_ms": {"rest": 0.5}}
    results = {
        step.NONE: {**figures, "rule": None},
        step.BEFORE: {**figures, "rule": rule},
        step.AFTER: {**figures, "rule": rule},
    }
    table = step.format_table({"results": results, "speedup": "2"})
    assert table.splitlines()[-1] == f"speed-up: 2{NOTES[rule]}"
    peer = {"name": "vLLM 0.32.0", "ours_to_peer": one}
    with_peer = {**results, "vLLM 0.32.0": {**figures, "rule": None}}
    table = step.format_table({"results": with_peer, "speedup": "2", "peer": peer})
    *_, line, last = table.splitlines()
    assert (line, last) == (f"speed-up: 2{NOTES[rule]}", "ours to vLLM 0.32.0: 1.00 (1.00-1.00)")


def test_the_own_share_leaves_the_draft_models_work_out() -> None:
    ms = {propose.DRAFT: 3.0, "forward": 1.0, "logits, directly": 1.5}
    engine: Any = SimpleNamespace(
        ms_of=lambda part: ms.get(part, 0.0),
        ms_per_step=[9.0, 11.0, 10.0],
        load=SimpleNamespace(batch=8),
        tokens_per_engine_step=2.0,
    )
    figures = propose.figures(engine)
    assert (figures["draft_ms"], figures["model_ms"]) == (3.0, 2.5)
    assert figures["own_share"] == 0.05
    (_, line) = propose.format_table([{"method": "eagle", **figures}]).splitlines()
    assert line.split() == ["eagle", "8", "10.00", "3.00", "2.50", "5.0%"]


def test_a_clock_adds_up_the_calls_of_a_method() -> None:
    clock, owner = Clock(), SimpleNamespace(work=lambda x: x + 1)
    clock.watch(owner, "work", "part")
    assert [owner.work(1), owner.work(2)] == [2, 3]
    assert clock.seconds["part"] > 0
