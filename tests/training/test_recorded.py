"""Answers that were recorded with their prompts are taken if they are the same target's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vllm_ascend_spec.training.answer_file import Answer, open_answers, read_answers
from vllm_ascend_spec.training.prompts import Place, Prompt, parse_record
from vllm_ascend_spec.training.recorded import take_recorded

PLACE = Place("--prompts", Path("p.jsonl"), 1)
LIMIT = 8


def recorded(first: int, target: str = "ours", length: int = 2, prompt: int = 3) -> Prompt:
    record: dict[str, Any] = {
        "prompt_token_ids": [first] * prompt,
        "token_ids": [1] * length,
        "finish_reason": "stop",
        "target": target,
    }
    return parse_record(record, PLACE)


def take(path: Path, *prompts: Prompt, **others: Any) -> tuple[int, list[Answer]]:
    with open_answers("--output", path, {}) as file:
        taken = take_recorded(prompts, file, "ours", LIMIT, **others)
    return taken, list(read_answers("--output", path))


def test_the_targets_own_are_taken_once(tmp_path: Path) -> None:
    mine, text = recorded(5), parse_record({"prompt": "x"}, PLACE)
    given = (mine, recorded(6, target="theirs"), text)
    expected = [Answer(mine.id, (5, 5, 5), (1, 1), "stop")]
    assert take(tmp_path / "answers.jsonl", *given) == (1, expected)
    assert take(tmp_path / "answers.jsonl", *given) == (0, expected)


def test_they_are_cut_at_the_limit(tmp_path: Path) -> None:
    given = [recorded(5, length=5), recorded(6, length=6), recorded(7, prompt=LIMIT)]
    taken, found = take(tmp_path / "a", *given)
    assert taken == 2
    assert [each.finish_reason for each in found] == ["stop", "length"]
    assert {len(each.all_token_ids()) for each in found} == {LIMIT}


def test_those_of_held_out_prompts_are_not_taken(tmp_path: Path) -> None:
    given = [recorded(5), recorded(6)]
    taken, found = take(tmp_path / "a", *given, held_out={(5, 5, 5)})
    assert (taken, [each.id for each in found]) == (1, [given[1].id])
