"""``bench accuracy``: what counts as a difference and a fall; a wrong verifier is found."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.zoo import SPECS, TARGET, ZOO
from vllm_ascend_spec.bench.accuracy import fall_of_score, format_table
from vllm_ascend_spec.bench.differences import ROUNDING, argmax, first_difference, judge
from vllm_ascend_spec.bench.lm_eval import compare, equal_answers
from vllm_ascend_spec.cli.main import main

LIKELY = {7: -0.5, 8: -0.6, 9: -3.0}


@pytest.mark.parametrize(
    ("ours", "theirs", "place"),
    [([1, 2], [1, 2], None), ([1, 3, 4], [1, 2, 4], 1), ([1], [1, 2], 1), ([1, 2], [1], 1)],
)
def test_the_first_difference(ours: list[int], theirs: list[int], place: int | None) -> None:
    assert first_difference(ours, theirs) == place


@pytest.mark.parametrize(
    ("actual", "dtype", "gap", "is_rounding"),
    [
        (8, "bfloat16", 0.1, True),
        (8, "float16", 0.1, False),
        (8, "float32", 0.1, False),
        (9, "bfloat16", 2.5, False),
        (5, "bfloat16", None, False),  # not known
        (None, "bfloat16", None, False),  # the answer has ended
    ],
)
def test_rounding_swaps_tokens_that_are_about_as_likely(
    actual: int | None, dtype: str, gap: float | None, is_rounding: bool
) -> None:
    found = judge(3, 1, (7, actual), LIKELY, ROUNDING[dtype])
    assert found.gap == (gap if gap is None else pytest.approx(gap))
    assert found.top2_gap == pytest.approx(0.1)
    assert found.is_rounding is is_rounding


def test_in_float32_two_equal_logits_are_no_excuse() -> None:
    assert not judge(1, 0, (7, 8), {7: -0.5, 8: -0.5}, ROUNDING["float32"]).is_rounding


@pytest.mark.parametrize(
    ("tokens", "gap", "is_rounding"),
    [((8, 9), 0.1, True), ((9, 8), -0.1, True), ((8, 7), -4.0, False), ((8, None), None, False)],
)
def test_choices_of_a_grammar_are_compared_with_each_other(
    tokens: tuple[int, int | None], gap: float | None, is_rounding: bool
) -> None:
    # The most likely token, 7, is none of the choices.
    found = judge(1, 0, tokens, {7: -0.5, 8: -4.5, 9: -4.6}, ROUNDING["bfloat16"])
    assert found.gap == (gap if gap is None else pytest.approx(gap))
    assert found.is_rounding is is_rounding


@pytest.mark.parametrize("likely", [{}, {7: -0.5}])
def test_fewer_than_two_likely_tokens(likely: dict[int, float]) -> None:
    found = judge(1, 0, (7, 8), likely, ROUNDING["bfloat16"])
    assert (found.gap, found.top2_gap, found.is_rounding) == (None, None, False)
    row = {"configuration": "eagle", "temperature": 0, "equal": 0, "tasks": 1, "score": 1.0}
    row |= {"score_without": 1.0, "passed": False, "rule": "token"}
    told = format_table({"results": [{**row, "differences": [asdict(found)]}]})
    assert "instead of 7, not comparable: no rounding" in told


class NamesTwo:
    """Stands for an engine that names its two most likely tokens and the one that it picks."""

    logits = (-0.5, -1.0, -5.0, -6.0)

    def __init__(self) -> None:
        self.asked = 0

    def generate(self, prompt: Any, parameters: Any, **_: Any) -> list[Any]:
        self.asked += 1
        (picked,) = parameters.allowed_token_ids or [0]
        named = {t: SimpleNamespace(logprob=self.logits[t]) for t in (picked, 0, 1)}
        return [SimpleNamespace(outputs=[SimpleNamespace(logprobs=[named])])]


@pytest.mark.parametrize(
    ("tokens", "asked"), [((1, 0), 1), ((1, 3), 2), ((2, 3), 3), ((1, None), 1)]
)
def test_both_tokens_are_asked_for_however_unlikely(tokens: Any, asked: int) -> None:
    llm = NamesTwo()
    found = argmax(llm, [1, 2], [3], tokens)
    assert found == {t: llm.logits[t] for t in {0, 1, *tokens} - {None}}
    assert llm.asked == asked


def test_a_fall_of_greedy_scores_is_never_chance() -> None:
    found = fall_of_score([1.0, 1.0, 0.0, 1.0], [1.0, 0.0, 0.0, 1.0], is_drawn=False)
    assert found == {"score_without": 0.75, "score": 0.5, "fall": 0.25, "chance": 0.0}


def test_a_fall_of_drawn_scores_counts_beyond_chance() -> None:
    by_chance = fall_of_score([1.0, 0.0] * 8, [0.0, 1.0] * 7 + [0.0, 0.0], is_drawn=True)
    assert 0 < by_chance["fall"] < by_chance["chance"]
    real = fall_of_score([1.0] * 15 + [0.5], [0.0] * 15 + [0.0], is_drawn=True)
    assert real["fall"] > real["chance"] > 0


# lm-eval.


def results(scores: dict[str, float], answers: list[str], **options: Any) -> dict[str, Any]:
    """Return what lm-eval does, as far as it is read."""
    request = ("prompt", {"until": ["\n"], **options})
    return {
        "results": {"sums": {"alias": "sums", "sample_len": 4, **scores}},
        "higher_is_better": {"sums": {"exact_match": True, "perplexity": False}},
        "samples": {"sums": [{"arguments": [request], "resps": [[a]]} for a in answers]},
    }


SCORES = {"exact_match,none": 0.5, "exact_match_stderr,none": 0.1, "perplexity,none": 9.0}


def test_a_metric_is_compared_by_what_is_better() -> None:
    worse = {**SCORES, "exact_match,none": 0.4, "perplexity,none": 9.2}
    rows = compare(results(SCORES, ["a"]), results(worse, ["a"]), 0.15, "float32")
    assert [(r["metric"], r["fall"], r["passed"]) for r in rows] == [
        ("exact_match,none", pytest.approx(0.1), True),
        ("perplexity,none", pytest.approx(0.2), False),
    ]


@pytest.mark.parametrize(("dtype", "passed"), [("float32", False), ("bfloat16", True)])
def test_greedy_answers_of_lm_eval_are_compared(dtype: str, passed: bool) -> None:
    rows = compare(results(SCORES, ["a", "b"]), results(SCORES, ["a", "c"]), 0, dtype)
    assert {(r["equal"], r["greedy_answers"], r["passed"]) for r in rows} == {(1, 2, passed)}


def test_drawn_answers_and_likelihoods_are_not() -> None:
    drawn = results(SCORES, ["a"], do_sample=True, temperature=0.8)["samples"]["sums"]
    likelihood = [{"arguments": [("a", " b")], "resps": [[-1.0]]}]
    for samples in (drawn, likelihood):
        assert equal_answers(samples, samples) == (0, 0)


# Runs.


WRONG = {
    **SPECS["eagle"],
    "num_speculative_tokens": 1,
    "rejection_sample_method": "synthetic",
    "synthetic_acceptance_rates": [1.0],
}


def test_a_verifier_that_accepts_everything_is_found(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    output, tasks = tmp_path / "record.json", tmp_path / "tasks.jsonl"
    lines = (ZOO / "tasks.jsonl").read_text().splitlines()
    tasks.write_text("\n".join([*lines[:4], lines[-2]]))
    arguments = ["bench", "accuracy", "--model", TARGET, "--tasks", str(tasks)]
    arguments += ["--max-tokens", "16", "--kv-cache-mib", "64", "--output", str(output)]
    arguments += ["--temperatures", "0,0.8", "--samples", "1", "--tolerance", "1"]
    for spec in (SPECS["ngram"], WRONG):
        arguments += ["--speculative-config", json.dumps(spec)]
    assert main(arguments) == 1

    record = json.loads(output.read_text())
    assert record["passed"] is False
    right, right_drawn, wrong, wrong_drawn = record["results"]
    assert (right["equal"], right["tasks"], right["passed"]) == (5, 5, True)
    assert right["score"] == right["score_without"] > 0
    assert right_drawn["equal"] is None
    assert (wrong["rule"], wrong["passed"]) == ("synthetic", False)
    assert 0 < len(wrong["differences"]) == 5 - wrong["equal"]
    first = wrong["differences"][0]
    # What the wrong verifier took is less likely than what the target would have written.
    assert first["gap"] >= first["top2_gap"] > 0
    assert wrong_drawn["passed"] is True
    told = capfd.readouterr().out
    assert "FAILED (synthetic, not lossless)" in told
    assert format_table(record) in told
    assert str(ZOO) not in output.read_text()


TASK = """
task: code_ends
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs:
  max_gen_toks: 16
  do_sample: false
  until: ["\\n"]
metric_list:
  - metric: exact_match
    aggregation: mean
    higher_is_better: true
"""


def test_a_task_of_lm_eval_with_local_data(tmp_path: Path) -> None:
    pytest.importorskip("lm_eval", reason="lm-eval is not installed (pip install lm-eval)")
    data, output = tmp_path / "items.jsonl", tmp_path / "record.json"
    items = [("def f(*args, **", "kwargs):"), ("x = [1, 2, 3, 4, 5, 6, 7,", " 8")]
    data.write_text("".join(json.dumps({"question": q, "answer": a}) + "\n" for q, a in items))
    (tmp_path / "code_ends.yaml").write_text(TASK.format(data=data))
    arguments = ["bench", "accuracy", "--model", TARGET, "--lm-eval", "code_ends"]
    arguments += ["--lm-eval-path", str(tmp_path), "--kv-cache-mib", "64"]
    arguments += ["--speculative-config", json.dumps(SPECS["ngram"])]
    assert main([*arguments, "--output", str(output)]) == 0
    (row,) = json.loads(output.read_text())["results"]
    assert (row["task"], row["metric"]) == ("code_ends", "exact_match,none")
    assert (row["equal"], row["greedy_answers"], row["passed"]) == (2, 2, True)


def test_tasks_of_lm_eval_that_are_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("lm_eval", reason="lm-eval is not installed (pip install lm-eval)")
    (tmp_path / "code_ends.yaml").write_text(TASK.format(data=tmp_path / "missing.jsonl"))
    arguments = ["bench", "accuracy", "--model", TARGET, "--lm-eval-path", str(tmp_path)]
    for name, words in (("no_such_task", "no such task"), ("code_ends", "not on this machine")):
        assert main([*arguments, "--lm-eval", name]) == 2
        error = capsys.readouterr().err
        assert words in error
        assert error.count("\nvllm-ascend-spec bench: error:") <= 1


def test_without_lm_eval(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "lm_eval", raising=False)
    real = importlib.util.find_spec

    def find(name: str, *more: Any) -> Any:
        return None if name == "lm_eval" else real(name, *more)

    monkeypatch.setattr("importlib.util.find_spec", find)
    assert main(["bench", "accuracy", "--lm-eval", "gsm8k"]) == 2
    assert "lm-eval is not installed; pip install lm-eval" in capsys.readouterr().err
