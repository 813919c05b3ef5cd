"""Answers are the target's own, in batches, and a second start goes on where the first ended."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import AutoTokenizer

from tests.zoo import TARGET
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.training.answer_file import Answer, open_answers, read_answers
from vllm_ascend_spec.training.answers import Outcome, Sampling, Target, answer_prompts
from vllm_ascend_spec.training.prompts import Place, Prompt, parse_record
from vllm_ascend_spec.training.tokens import tokenize

MADE_BY = {"target": "zoo", "layers": (1, 2)}
CHAT = {"messages": [{"role": "user", "content": "Hi"}]}
CODE = [{"prompt": f"def function_{n}(" + "x, " * n} for n in range(10)]


def prompts(records: Sequence[Any]) -> list[Prompt]:
    numbered = enumerate(records, 1)
    return [parse_record(each, Place("--prompts", Path("p.jsonl"), n)) for n, each in numbered]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(TARGET)


class Counts:
    """Answers with the prompt's last token and its length, and stops where it is told to.

    What an engine answers is tested with a real one in ``phases/``.
    """

    def __init__(self, batches_until_killed: int = 1000) -> None:
        self.batches: list[int] = []
        self.limits: list[int] = []
        self.seeds: list[int | None] = []
        self._until = batches_until_killed

    def generate(
        self, prompts: Sequence[Any], sampling_params: Sequence[Any], *, use_tqdm: bool
    ) -> list[Any]:
        if len(self.batches) == self._until:
            raise KeyboardInterrupt
        self.batches.append(len(prompts))
        self.limits += [each.max_tokens for each in sampling_params]
        self.seeds += [each.seed for each in sampling_params]
        answers = [
            [each["prompt_token_ids"][-1], len(each["prompt_token_ids"])] for each in prompts
        ]
        made = [SimpleNamespace(token_ids=each, finish_reason="stop") for each in answers]
        return [SimpleNamespace(outputs=[each]) for each in made]


def answer(
    path: Path,
    tokenizer: Any,
    engine: Counts,
    records: Sequence[Any] = CODE,
    sampling: Sampling | None = None,
    max_model_len: int = 512,
) -> tuple[Outcome, list[str]]:
    lines: list[str] = []
    with open_answers("--output", path, MADE_BY) as file:
        outcome = answer_prompts(
            Target(lambda: engine, tokenizer, max_model_len), prompts(records), file,
            sampling or Sampling(), len(records), lines.append, batch=3,
        )  # fmt: skip
    return outcome, lines


def told(path: Path, made_by: dict[str, Any] | None = None) -> str:
    with (
        pytest.raises(ConfigError) as raised,
        open_answers("--output", path, made_by or MADE_BY),
    ):
        pass
    return str(raised.value)


def test_prompts_are_answered_in_batches_with_progress(tmp_path: Path, tokenizer: Any) -> None:
    path, engine = tmp_path / "out" / "answers.jsonl", Counts()
    outcome, lines = answer(path, tokenizer, engine)
    assert outcome == Outcome(answered=10, too_long=0)
    assert engine.batches == [3, 3, 3, 1]
    assert [line.partition(",")[0] for line in lines] == [
        f"answers: {n} of 10 prompts" for n in (3, 6, 9, 10)
    ]
    found = list(read_answers("--output", path))
    assert [each.id for each in found] == [each.id for each in prompts(CODE)]
    first = found[0]
    assert list(first.prompt_token_ids) == tokenizer(CODE[0]["prompt"])["input_ids"]
    assert first.all_token_ids() == [*first.prompt_token_ids, *first.token_ids]
    assert first.loss_mask() == [0] * len(first.prompt_token_ids) + [1, 1]


def test_a_second_start_goes_on_where_the_first_one_ended(tmp_path: Path, tokenizer: Any) -> None:
    whole, path = tmp_path / "whole.jsonl", tmp_path / "killed.jsonl"
    answer(whole, tokenizer, Counts())
    with pytest.raises(KeyboardInterrupt):
        answer(path, tokenizer, Counts(batches_until_killed=2))
    # As a kill in the middle of a write leaves it.
    with path.open("a") as file:
        file.write('{"id": "00", "prompt_token_ids": [1, 2')
    assert len(list(read_answers("--output", path))) == 6
    engine = Counts()
    outcome, lines = answer(path, tokenizer, engine)
    assert outcome.answered == sum(engine.batches) == 4
    assert lines[0].startswith("answers: 9 of 10 prompts")
    assert path.read_text() == whole.read_text()
    assert answer(path, tokenizer, Counts(0))[0].answered == 0


def test_a_prompt_has_its_own_seed(tmp_path: Path, tokenizer: Any) -> None:
    warm, other, greedy = Counts(), Counts(), Counts()
    answer(tmp_path / "a", tokenizer, warm, sampling=Sampling(temperature=0.8, seed=1))
    answer(tmp_path / "b", tokenizer, other, CODE[::-1], Sampling(temperature=0.8, seed=1))
    answer(tmp_path / "c", tokenizer, greedy)
    assert warm.seeds == other.seeds[::-1]
    assert len(set(warm.seeds)) == 10
    assert set(greedy.seeds) == {None}


def test_long_prompts_are_left_out_and_answers_get_the_room_there_is(
    tmp_path: Path, tokenizer: Any
) -> None:
    lengths = [len(tokenizer(each["prompt"])["input_ids"]) for each in CODE]
    engine, most = Counts(), lengths[6]
    outcome, _ = answer(tmp_path / "a", tokenizer, engine, max_model_len=most)
    assert outcome == Outcome(answered=6, too_long=4)
    assert engine.limits == [most - each for each in lengths[:6]]
    with pytest.raises(ConfigError, match="--max-model-len=2: all 10 prompts have"):
        answer(tmp_path / "b", tokenizer, Counts(), max_model_len=2)


def test_no_engine_is_started_for_nothing(tmp_path: Path, tokenizer: Any) -> None:
    path = tmp_path / "a"
    answer(path, tokenizer, Counts())
    with open_answers("--output", path, MADE_BY) as file:
        target = Target(lambda: pytest.fail("an engine was started"), tokenizer, 512)
        assert answer_prompts(target, prompts(CODE), file, Sampling(), 10, print).answered == 0


def test_a_held_out_prompt_is_not_answered_in_another_form(tmp_path: Path, tokenizer: Any) -> None:
    tokens = tuple(tokenizer(CODE[4]["prompt"])["input_ids"])
    for name, held_out in (("a", set[tuple[int, ...]]()), ("b", {tokens})):
        with open_answers("--output", tmp_path / name, MADE_BY) as file:
            target = Target(Counts, tokenizer, 512)
            given = prompts([*CODE, {"prompt_token_ids": list(tokens)}])
            outcome = answer_prompts(target, given, file, Sampling(), 11, print, held_out=held_out)
            assert outcome.answered == (9 if held_out else 11)


@pytest.mark.parametrize(
    ("made_by", "problem"),
    [
        ({"target": "other", "layers": (1, 2)}, "with target 'zoo', not 'other'"),
        ({"target": "zoo"}, "with layers [1, 2], not None"),
        ({**MADE_BY, "top_k": 1}, "with top_k None, not 1"),
    ],
)
def test_answers_made_otherwise_are_not_mixed_in(
    tmp_path: Path, tokenizer: Any, made_by: dict[str, Any], problem: str
) -> None:
    path = tmp_path / "answers.jsonl"
    answer(path, tokenizer, Counts())
    assert f"its answers were made {problem}; valid: another folder" in told(path, made_by)


def test_a_damaged_line_is_named_and_other_files_are_left_alone(
    tmp_path: Path, tokenizer: Any
) -> None:
    path = tmp_path / "answers.jsonl"
    answer(path, tokenizer, Counts())
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:2], "{\n", *lines[2:]]))
    assert "line 3 is damaged; delete it" in told(path)
    path.write_text("".join([*lines[:2], '{"id": "x"}\n']))
    assert "line 3 is no answer; delete it" in told(path)
    path.write_text('{"prompt": "mine"}\n')
    assert "line 1 does not say how answers were made" in told(path)
    assert path.read_text() == '{"prompt": "mine"}\n'


def test_two_processes_do_not_write_to_one_file(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    with open_answers("--output", path, MADE_BY) as file:
        assert "another process writes answers there" in told(path)
        file.append([Answer("1", (1,), (2,), "stop")] * 2)
    assert len(list(read_answers("--output", path))) == 1


def test_a_conversation_is_written_by_the_chat_template(tokenizer: Any) -> None:
    (prompt,) = prompts([CHAT])
    text = tokenizer.apply_chat_template(
        CHAT["messages"], tokenize=False, add_generation_prompt=True
    )
    assert tokenizer.decode(tokenize(prompt, tokenizer)) == text


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ('{"a": 1}', {"a": 1}),
        ({"a": 1}, {"a": 1}),
        *((wrong, {}) for wrong in ('{"a": ', "[1]", "", None)),
    ],
)
def test_a_call_is_written_as_vllms_server_writes_it(
    arguments: Any, wanted: dict[str, int], tokenizer: Any
) -> None:
    """A template writes the arguments as JSON, so they must not be JSON before."""
    function = {"name": "add", "arguments": arguments}
    call = {"role": "assistant", "tool_calls": [{"type": "function", "function": function}]}
    result = {"role": "tool", "content": "2"}
    (prompt,) = prompts([{"messages": [*CHAT["messages"], call, result]}])
    writes = AutoTokenizer.from_pretrained(TARGET)
    writes.chat_template = "{{ messages[1] | tojson }}"
    assert json.loads(tokenizer.decode(tokenize(prompt, writes))) == {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"type": "function", "function": {"name": "add", "arguments": wanted}}],
    }
    assert function["arguments"] == arguments


def test_tokens_stay_as_they_are_given(tokenizer: Any) -> None:
    (prompt,) = prompts([{"prompt_token_ids": [5, 5, 6]}])
    assert tokenize(prompt, tokenizer) == [5, 5, 6]


def test_what_the_template_refuses_is_told_by_line(tokenizer: Any) -> None:
    (prompt,) = prompts([CHAT])
    strict = AutoTokenizer.from_pretrained(TARGET)
    strict.chat_template = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(ConfigError) as raised:
        tokenize(prompt, strict)
    assert "line 1: the chat template refuses it: roles must alternate" in str(raised.value)


def test_a_line_of_the_file_can_be_read_by_others(tmp_path: Path, tokenizer: Any) -> None:
    path = tmp_path / "answers.jsonl"
    answer(path, tokenizer, Counts())
    made_by, first, *_ = map(json.loads, path.read_text().splitlines())
    assert made_by == {"made_by": {"target": "zoo", "layers": [1, 2]}}
    assert sorted(first) == ["finish_reason", "id", "prompt_token_ids", "token_ids"]
