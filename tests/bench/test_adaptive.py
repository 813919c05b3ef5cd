"""``benchmarks adaptive``: what its figures are made of, and one small run of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks import adaptive, adaptive_picture
from tests.benchmarks.__main__ import main
from tests.benchmarks.adaptive import (
    ADAPTIVE,
    CONTROL,
    NONE,
    best_of_each_phase,
    cell_figures,
    control_figures,
    factors,
    figures,
    format_table,
    joined,
    steps_by_length,
    thinned,
)
from tests.zoo import SPECS, TARGET
from vllm_ascend_spec.bench.closed_loop import Phase, Run

SPEEDS = {NONE: [100.0, 110.0], "K=1": [150.0, 140.0], "K=2": [120.0, 90.0], ADAPTIVE: [135, 154]}


def test_the_adaptive_one_stands_beside_none_and_the_best_fixed_of_the_same_round() -> None:
    found = figures(SPEEDS)
    assert found["best_fixed"] == "K=1"
    assert found["to_none"]["median"] == pytest.approx(1.375)
    assert found["to_best_fixed"] == {"median": 1.0, "low": 0.9, "high": 1.1}


def test_the_best_fixed_may_be_none() -> None:
    assert figures({NONE: [5.0], "K=1": [4.0], ADAPTIVE: [4.9]})["best_fixed"] == NONE


def test_the_best_of_the_other_rounds_is_no_luck_of_this_one() -> None:
    lucky = {NONE: [100.0, 90.0, 90.0], "K=1": [50.0, 200.0, 110.0], ADAPTIVE: [100.0, 100.0, 99.0]}
    found = figures(lucky)
    assert (found["best_fixed"], found["to_best_fixed"]["median"]) == ("K=1", 0.9)
    # K=1, none, K=1.
    assert found["to_chosen_before"] == {"median": 1.1111, "low": 0.9, "high": 2.0}


def test_factors_multiply_to_the_ratio_of_the_speeds() -> None:
    def runs(*steps: tuple[float, int, int | None]) -> list[Run]:
        whole = Run()
        for seconds, tokens, k in steps:
            whole = joined([whole, Run(tokens, seconds, [(seconds, tokens, k)])])
        return [whole]

    cell = {
        NONE: runs((1.0, 4, None)),
        "K=1": runs((2.0, 12, None)),
        "K=2": runs((3.0, 15, None)),
        ADAPTIVE: runs((1.0, 4, 0), (2.2, 12, 1), (2.0, 12, 1), (3.0, 18, 2)),
    }
    found = cell_figures(cell)
    assert found["best_fixed"] == "K=1"
    assert found["factors"] == factors(found["steps"], "K=1")
    parts = found["factors"]
    assert parts["lengths"] == pytest.approx(43 / 8 / 6, abs=1e-4)
    assert parts["step_time"] == pytest.approx(8 / 8.2, abs=1e-4)
    assert parts["acceptance"] == pytest.approx(46 / 43, abs=1e-4)
    product = parts["lengths"] * parts["step_time"] * parts["acceptance"]
    assert product == pytest.approx(found["to_best_fixed"]["median"], abs=1e-3)


def test_every_fixed_length_is_a_peer() -> None:
    assert adaptive.configurations(3) == {
        NONE: None,
        "K=1": 1,
        "K=2": 2,
        "K=3": 3,
        ADAPTIVE: None,
    }
    assert adaptive.configurations(2, has_control=True) == {
        NONE: None,
        "K=1": 1,
        "K=2": 2,
        ADAPTIVE: None,
        CONTROL: 2,
    }


def test_the_control_is_compared_with_its_like_and_is_no_peer() -> None:
    cell = {
        "K=2": [Run(10, 1.0), Run(10, 1.0)],
        "K=3": [Run(10, 1.0), Run(10, 2.0)],
        CONTROL: [Run(11, 1.0), Run(9, 2.0)],
    }
    assert control_figures(cell, "K=3") == {CONTROL: {"median": 1.0, "low": 0.9, "high": 1.1}}
    assert list(cell) == ["K=2", "K=3"]
    assert control_figures(cell, "K=3") == {}


def test_phases_follow_each_other() -> None:
    first, second = Run(10, 2.0, [(1.0, 5, 3), (2.0, 10, 3)]), Run(4, 1.0, [(1.0, 4, 0)])
    whole = joined([first, second])
    assert (whole.tokens, whole.seconds) == (14, 3.0)
    assert whole.trace == [(1.0, 5, 3), (2.0, 10, 3), (3.0, 14, 0)]
    assert whole.speed == pytest.approx(14 / 3)


def test_steps_are_told_apart_by_length() -> None:
    one, other = Run(0, 0, [(1.0, 4, 3), (1.5, 5, 0)]), Run(0, 0, [(0.5, 2, 3), (1.5, 6, 3)])
    assert steps_by_length([one, other]) == {
        "0": {"share": 0.25, "tokens_per_step": 1.0, "ms_per_step": 500.0},
        "3": {"share": 0.75, "tokens_per_step": 3.3333, "ms_per_step": 833.3333},
    }
    assert list(steps_by_length([Run(0, 0, [(1.0, 1, None)])])) == ["fixed"]


def test_a_trace_is_thinned_and_keeps_its_end() -> None:
    trace = [(float(place), place, 1) for place in range(1001)]
    found = thinned(trace, points=100)
    assert len(found) <= 101
    assert found[-1] == trace[-1]
    assert thinned(trace[:3]) == trace[:3]


def test_a_load_has_enough_requests_for_all_of_its_clients() -> None:
    assert Phase(1, "plain", 0.0).num_requests == 32
    assert Phase(16, "plain", 0.0).num_requests == 64
    assert Phase(16, "plain", 0.8, 5).num_requests == 5


def test_the_table_has_a_line_for_each_load() -> None:
    known = {"tokens_per_s": 174.0, "configurations": ["K=2", NONE]}
    record = {
        "cells": {"1 clients": figures(SPEEDS)},
        "alternating": {"both": {**figures(SPEEDS), "best_of_each_phase": known}},
    }
    record["cells"]["1 clients"]["factors"] = {"lengths": 0.98, "step_time": 1.0}
    *lines, parts, last = format_table(record).splitlines()
    assert [line.split()[0] for line in lines] == ["tokens/s", "1", "both"]
    assert all(line.endswith("K=1") for line in lines[1:])
    assert parts == "1 clients: of that ratio lengths 0.98, step time 1.00"
    assert last == "both: 174 with the best of each phase, 1.20 of K=1 (K=2, none)"


def test_who_knows_the_load_takes_the_best_of_each_phase() -> None:
    def runs(*seconds: float) -> list[Run]:
        return [Run(tokens=100, seconds=taken) for taken in seconds]

    rounds = {
        NONE: [runs(2.0, 1.0), runs(2.2, 1.0)],
        "K=1": [runs(1.0, 2.0), runs(1.0, 2.2)],
        ADAPTIVE: [runs(0.1, 0.1)] * 2,
    }
    found = best_of_each_phase(rounds)
    assert found == {"tokens_per_s": pytest.approx(100.0), "configurations": ["K=1", NONE]}


def make_traces(traces: dict[str, Any]) -> dict[str, Any]:
    return {"plan": {"speculative_config": {"num_speculative_tokens": 3}}, "traces": traces}


def test_seconds_and_lengths_of_the_picture_can_be_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where loads take differently long, and where K hardly changes."""
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    kept: list[Any] = []
    monkeypatch.setattr(adaptive_picture, "save", lambda figure, path: str(kept.append(figure)))
    short, long = ([(place / 10, place, 2) for place in range(1, n)] for n in (40, 100))
    loads = {"T=0": {NONE: long, ADAPTIVE: short}, "T=0.8": {NONE: short, ADAPTIVE: short}}
    adaptive_picture.draw(make_traces(loads), tmp_path / "x.png")
    (figure,) = kept
    assert figure.get_suptitle()
    assert len({panel.get_xlim() for panel in figure.axes}) == 1
    for lengths in figure.axes[1::2]:
        low, high = lengths.get_ylim()
        assert [tick for tick in lengths.get_yticks() if low <= tick <= high] == [0, 1, 2, 3]


def test_the_picture_has_speed_and_length(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    trace = [(place / 10, place * 3, place % 4) for place in range(1, 50)]
    record = make_traces({"alternating, T=0": {NONE: trace, ADAPTIVE: trace}})
    told = adaptive_picture.draw(record, tmp_path / "a" / "picture.png")
    assert told.endswith("picture.png")
    assert (tmp_path / "a" / "picture.png").read_bytes().startswith(b"\x89PNG")
    times, speeds = adaptive_picture.speed_over_time(trace)
    assert len(times) == len(speeds) > 0
    assert speeds == pytest.approx([30.0] * len(speeds))


@pytest.mark.parametrize(
    ("option", "value"),
    [("--clients", "0,1"), ("--rounds", "0"), ("--temperatures", "-1"), ("--clients", "few")],
)
def test_what_cannot_be_measured_is_refused(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["adaptive", option, value]) == 2
    assert option in capsys.readouterr().err


def test_a_picture_of_what_is_left_out_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["adaptive", "--cells-only", "--png", "x.png"]) == 2
    assert "--png='x.png': draws the load that --cells-only leaves out" in capsys.readouterr().err


@pytest.mark.nightly
def test_a_small_run(tmp_path: Path) -> None:
    output = tmp_path / "record.json"
    spec: dict[str, Any] = {**SPECS["eagle"], "num_speculative_tokens": 1}
    arguments = ["adaptive", "--model", TARGET, "--rounds", "1", "--clients", "2"]
    arguments += ["--speculative-config", json.dumps(spec), "--max-tokens", "8"]
    arguments += ["--temperatures", "0", "--control", "--output", str(output)]
    assert main(arguments) == 0
    record = json.loads(output.read_text())
    assert set(record["cells"]) == {"2 clients, plain, T=0"}
    assert record["cells"]["2 clients, plain, T=0"][CONTROL]["median"] > 0
    assert set(record["alternating"]) == {"alternating, T=0"}
    for row in (*record["cells"].values(), *record["alternating"].values()):
        assert set(row["tokens_per_s"]) == {NONE, "K=1", ADAPTIVE}
