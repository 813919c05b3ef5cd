"""What a failing comparison of answers says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.e2e.gaps import assert_same_answers, first_difference


class Engine:
    """Knows the logits of one place."""

    def __init__(self, **logprobs: float) -> None:
        self.logprobs = [{name: SimpleNamespace(logprob=x) for name, x in logprobs.items()}]
        self.asked: list[list[int]] = []

    def get_tokenizer(self) -> Any:
        return SimpleNamespace(encode=lambda text, add_special_tokens: [ord(c) for c in text])

    def generate(self, prompt: Any, *_: Any, **__: Any) -> list[Any]:
        self.asked.append(prompt["prompt_token_ids"])
        return [SimpleNamespace(outputs=[SimpleNamespace(logprobs=self.logprobs)])]


def test_it_names_the_place_and_both_gaps() -> None:
    ours, plain = Engine(a=-1.0, b=-1.5), Engine(a=-2.0, b=-1.75, c=-9.0)
    with pytest.raises(pytest.fail.Exception) as failed:
        assert_same_answers(ours, plain, ["ab", "c"], [[1, 2], [3, 4]], [[1, 2], [3, 5]])
    assert str(failed.value) == (
        "answer 1, token 1: [4] instead of [5]; gap between the two best logits "
        "5.00e-01 with speculation, 2.50e-01 without"
    )
    # Both were asked what comes after the part that they agree on.
    assert ours.asked == plain.asked == [[ord("c"), 3]]


def test_the_same_answers_are_no_difference() -> None:
    assert_same_answers(None, None, ["a"], [[1]], [[1]])


@pytest.mark.parametrize(
    ("ours", "theirs", "place"), [([1, 2], [1, 3], 1), ([1], [1, 2], 1), ([], [4], 0)]
)
def test_where_answers_part(ours: list[int], theirs: list[int], place: int) -> None:
    assert first_difference(ours, theirs) == place
