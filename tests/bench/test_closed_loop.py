"""What a load of clients measures, with an engine that takes no time."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from vllm_ascend_spec.bench import closed_loop
from vllm_ascend_spec.bench.closed_loop import (
    SPREAD,
    ClosedLoopEngine,
    Phase,
    answer_length,
    longest_answer,
)


class Core:
    """Gives each running request so many tokens in a step."""

    def __init__(self, steps: Sequence[int]) -> None:
        self.steps, self.running = steps, dict[str, list[int]]()
        self.lengths: list[int] = []
        self.batches: list[int] = []
        self.engine_core = SimpleNamespace()

    def add_request(self, name: str, prompt: str, parameters: Any) -> None:
        self.running[name] = [0, parameters.max_tokens]
        self.lengths.append(parameters.max_tokens)

    def has_unfinished_requests(self) -> bool:
        return bool(self.running)

    def step(self) -> list[Any]:
        self.batches.append(len(self.running))
        outputs = []
        for place, (name, counts) in enumerate(list(self.running.items())):
            counts[0] = min(counts[1], counts[0] + self.steps[place % len(self.steps)])
            ended = counts[0] == counts[1]
            answer = SimpleNamespace(token_ids=range(counts[0]))
            outputs.append(SimpleNamespace(request_id=name, outputs=[answer], finished=ended))
            if ended:
                del self.running[name]
        return outputs


@pytest.fixture
def core(request: pytest.FixtureRequest) -> Core:
    return Core(request.param)


@pytest.fixture
def engine(core: Core, monkeypatch: pytest.MonkeyPatch) -> ClosedLoopEngine:
    built = SimpleNamespace(llm_engine=core)
    monkeypatch.setattr(closed_loop, "build_engine", lambda *_, **__: built)
    monkeypatch.setattr(closed_loop, "scheduler_of", lambda _: None)
    return ClosedLoopEngine("model", None, most_clients=4, max_tokens=20)


@pytest.mark.parametrize("core", [(1,), (1, 3, 2)], indirect=True)
def test_it_ends_with_the_first_client_that_has_nothing_left(
    core: Core, engine: ClosedLoopEngine
) -> None:
    run = engine.serve(Phase(4, "plain", 0.0, 16), ["a", "b"])
    measured = len(run.trace)
    assert core.batches[:measured] == [4] * measured
    assert core.batches[measured:] == sorted(core.batches[measured:], reverse=True)
    assert max(core.batches[measured:]) < 4
    assert len(core.lengths) == 16
    assert run.tokens == run.trace[-1][1] < sum(core.lengths)
    assert run.seconds == run.trace[-1][0]
    assert len(run.first_s) == 16


@pytest.mark.parametrize("core", [(1,)], indirect=True)
def test_of_one_client_everything_counts(core: Core, engine: ClosedLoopEngine) -> None:
    run = engine.serve(Phase(1, "plain", 0.0, 5), ["a"])
    assert run.tokens == sum(core.lengths)
    assert len(run.trace) == len(core.batches)


@pytest.mark.parametrize("core", [(1,)], indirect=True)
def test_answers_of_one_token_a_step_do_not_end_together(
    core: Core, engine: ClosedLoopEngine
) -> None:
    engine.serve(Phase(4, "plain", 0.0, 16), ["a"])
    assert len(set(core.lengths[:4])) == 4


@pytest.mark.parametrize("max_tokens", [1, 8, 48, 100])
def test_answers_are_as_long_as_asked_for_on_average(max_tokens: int) -> None:
    lengths = [answer_length(max_tokens, place) for place in range(64)]
    assert statistics.mean(lengths) == pytest.approx(max_tokens, rel=0.02)
    assert min(lengths) >= max(1, int(max_tokens * (1 - SPREAD)))
    assert max(lengths) <= longest_answer(max_tokens)
