"""Forms of prompts, ids that last, and the held-out split."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.training.prompts import (
    Place,
    Prompt,
    Recorded,
    parse_record,
    split_held_out,
)

PLACE = Place("--prompts", Path("p.jsonl"), 3)
USER = {"role": "user", "content": "Hi"}
REPLY = {"role": "assistant", "content": "Hello"}
RECORDED = {
    "prompt_token_ids": [5, 6],
    "token_ids": [7],
    "finish_reason": "stop",
    "target": "ab12",
}


def parse(record: object) -> Prompt:
    return parse_record(record, PLACE)


def test_a_text_is_taken_as_it_is() -> None:
    found = parse({"prompt": " def f(", "category": "code"})
    assert (found.text, found.messages, found.tools) == (" def f(", (), ())


def test_a_conversation_ends_where_an_answer_is_asked_for() -> None:
    found = parse({"messages": [USER, REPLY, USER, REPLY, REPLY]})
    assert found.messages == (USER, REPLY, USER)
    assert found.text == ""


def test_sharegpt_is_the_same_conversation() -> None:
    turns = [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]
    assert parse({"conversations": turns}) == parse({"messages": [USER]})


def test_tools_and_calls_are_kept() -> None:
    calls = [{"id": "1", "function": {"name": "add", "arguments": '{"a": 1}'}}]
    call = {"role": "assistant", "content": None, "tool_calls": calls}
    result = {"role": "tool", "content": "4", "tool_call_id": "1"}
    found = parse({"messages": [USER, call, result], "tools": [{"name": "add"}]})
    assert found.messages == (USER, {"role": "assistant", "tool_calls": calls}, result)
    assert found.tools == ({"name": "add"},)
    assert found.id != parse({"messages": [USER, call, result]}).id


def test_parts_of_text_are_joined() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert (
        parse({"messages": [{"role": "user", "content": parts}]}).messages[0]["content"] == "a\nb"
    )


def test_tokens_are_a_prompt_with_the_answer_that_was_recorded() -> None:
    found = parse({**RECORDED, "prompt": "not what counts"})
    assert (found.text, found.messages, found.token_ids) == ("", (), (5, 6))
    assert found.recorded == Recorded("ab12", (7,), "stop")
    # The same prompt, whoever answered it.
    assert parse({"prompt_token_ids": [5, 6]}).id == found.id


@pytest.mark.parametrize(
    "change",
    [
        {"target": None},
        {"token_ids": None},
        {"token_ids": []},
        {"finish_reason": "abort"},
        {"finish_reason": None},
    ],
)
def test_answers_that_are_not_whole_or_nobodys_are_left_out(change: dict[str, object]) -> None:
    assert parse({**RECORDED, **change}).recorded is None


def test_columns_that_a_row_does_not_have_are_no_form() -> None:
    assert parse({"messages": None, "conversations": None, "prompt": "x"}).text == "x"


def test_an_id_depends_on_the_content_alone() -> None:
    first = parse({"messages": [USER], "id": 1})
    other_place = Place("--prompts", Path("q.jsonl"), 9)
    again = parse_record({"id": 2, "messages": [{"content": "Hi", "role": "user"}]}, other_place)
    assert first.id == again.id
    assert first == again
    # Fixed: an id of another release would make a second start answer all prompts again.
    assert parse({"prompt": "x"}).id == "9e63c87c67c4d4d8788cfb4b8158d9d2"
    assert parse({"prompt": "x "}).id != parse({"prompt": "x"}).id


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        ([1], "is not a JSON object"),
        ({"text": "x"}, 'has no "prompt", "messages" or "conversations"'),
        ({"prompt": " "}, '"prompt" has to be a text that is not empty'),
        ({"prompt": 3}, '"prompt" has to be a text that is not empty'),
        ({"prompt": [USER]}, 'name it "messages"'),
        ({"prompt": "\ud800"}, "half of a surrogate pair"),
        ({"messages": []}, '"messages" has to be a list that is not empty'),
        ({"messages": [REPLY]}, "no message of the user's"),
        ({"messages": ["x"]}, '"messages"[0] has no "role" of system'),
        ({"messages": [USER, {"role": "me", "content": "x"}]}, '"messages"[1] has no "role"'),
        ({"messages": [{"role": "user"}]}, '"messages"[0] has no text as its "content"'),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "not text"),
        ({"messages": [USER], "tools": "add"}, '"tools" has to be a list'),
        ({"messages": [{**REPLY, "tool_calls": [{"id": "1"}]}]}, '[0] has "tool_calls" that are'),
        (
            {"messages": [{**REPLY, "tool_calls": "add"}]},
            '[0] has "tool_calls" that are not a list',
        ),
        ({"conversations": [{"from": "x", "value": ""}]}, '"conversations"[0] has no "from"'),
        ({"conversations": [{"from": "human"}]}, 'has no text as its "value"'),
        ({"prompt_token_ids": []}, '"prompt_token_ids" has to be a list that is not empty'),
        ({"prompt_token_ids": [1, -1]}, '"prompt_token_ids" has to be a list of token ids'),
        ({**RECORDED, "token_ids": ["x"]}, '"token_ids" has to be a list of token ids'),
    ],
)
def test_what_is_no_prompt_is_told_in_one_line(record: object, problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse(record)
    told = str(raised.value)
    assert told.startswith("--prompts='p.jsonl': line 3: ")
    assert problem in told
    assert "valid:" in told
    assert "\n" not in told


IDS = [parse({"prompt": str(n)}).id for n in range(2000)]


@pytest.mark.parametrize("holdout", [0.05, 0.5, 1, 40])
def test_the_split_does_not_depend_on_the_order(holdout: float) -> None:
    train, held = split_held_out(IDS, holdout)
    shuffled = random.Random(0).sample(IDS, len(IDS))
    assert split_held_out(shuffled * 2, holdout) == (train, held)
    assert train | held == set(IDS)
    assert not train & held
    expected = holdout * len(IDS) if holdout < 1 else holdout
    # Five standard deviations.
    assert abs(len(held) - expected) <= (0 if holdout >= 1 else 5 * len(IDS) ** 0.5 / 2)


def test_with_a_share_a_prompt_stays_on_its_side_when_others_are_added() -> None:
    _, some = split_held_out(IDS[:1000], 0.1)
    _, more = split_held_out(IDS, 0.1)
    assert some == more & set(IDS[:1000])


def test_a_small_share_of_a_few_prompts_holds_one_out() -> None:
    assert len(split_held_out(IDS[:5], 1e-6)[1]) == 1


@pytest.mark.parametrize("holdout", [0, -1, 1.5, float("nan"), float("inf"), 5, 0.9999999])
def test_a_split_that_cannot_be_is_refused(holdout: float) -> None:
    with pytest.raises(ConfigError, match="--holdout"):
        split_held_out(IDS[:5], holdout)


def test_a_prompt_can_be_written_as_it_was_read() -> None:
    assert json.loads(json.dumps(parse({"messages": [USER]}).messages)) == [USER]
