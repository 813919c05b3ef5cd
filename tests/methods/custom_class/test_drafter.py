"""What a person's class returns becomes what the scheduler takes."""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.methods.engine import VOCAB, make_batch, make_config, make_engine, make_step
from vllm_ascend_spec.errors import CustomProposerError
from vllm_ascend_spec.log import PARENT, log_once
from vllm_ascend_spec.methods.custom_class import drafter as module
from vllm_ascend_spec.methods.custom_class.drafter import CustomClassDrafter

BATCH = make_batch([1, 2], [3], [4, 5, 6])


class Says:
    """Drafts what it was told to, and remembers what it was asked."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[tuple[Any, ...]] = []

    def propose(self, *arguments: Any, slot_mappings: Any) -> Any:
        self.asked.append((*arguments, slot_mappings))
        return self.answer


def drafts(answer: Any, num_reqs: int = 2, num_drafts: int = 3) -> Any:
    drafter = CustomClassDrafter(Says(answer), make_config(3))
    return drafter.draft(make_step(BATCH, *[[1]] * num_reqs, num_drafts=num_drafts))


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that gives the warnings so far."""
    monkeypatch.setattr(logging.getLogger("vllm"), "propagate", True)
    log_once.cache_clear()
    with caplog.at_level(logging.WARNING, logger=PARENT):
        yield lambda: [record.getMessage() for record in caplog.records]
    log_once.cache_clear()


def test_class_gets_what_vllm_gives() -> None:
    custom = Says([[], []])
    sampled: list[list[int]] = [[1], []]
    step = make_step(BATCH, *sampled, slot_mappings="slots")
    CustomClassDrafter(custom, make_config()).draft(step)
    assert custom.asked == [(sampled, BATCH.num_tokens_no_spec, BATCH.token_ids_cpu, "slots")]


@pytest.mark.parametrize(
    "answer",
    [
        [[1, 2, 3], [4]],
        ([1, 2, 3], (4,)),
        [np.array([1, 2, 3]), np.array([4])],
        [torch.tensor([1, 2, 3]), torch.tensor([4])],
        np.array([[1, 2, 3], [4, -1, -1]]),
        torch.tensor([[1, 2, 3], [4, -1, -1]]),
    ],
    ids=["lists", "tuples", "arrays", "tensors", "padded array", "padded tensor"],
)
def test_lists_arrays_and_tensors_are_taken(answer: Any, warnings: Any) -> None:
    assert drafts(answer) == [[1, 2, 3], [4]]
    # Drafts cross processes as plain integers.
    assert json.loads(json.dumps(drafts(answer))) == [[1, 2, 3], [4]]
    assert warnings() == []


def test_drafts_beyond_k_are_cut_off_with_one_warning(warnings: Any) -> None:
    for _ in range(3):
        assert drafts([[1, 2, 3, 4, 5], []]) == [[1, 2, 3], []]
    (warning,) = warnings()
    assert "'a.B' drafted more than the 3 drafts asked for" in warning


@pytest.mark.parametrize("wrong", [VOCAB, VOCAB + 7, -2])
def test_drafts_outside_the_vocabulary_end_the_row_with_one_warning(
    wrong: int, warnings: Any
) -> None:
    for _ in range(3):
        assert drafts([[1, wrong, 2], [VOCAB - 1, 0]]) == [[1], [VOCAB - 1, 0]]
    (warning,) = warnings()
    assert f"outside the vocabulary of {VOCAB}" in warning


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "returned NoneType"),
        (7, "returned int"),
        ([[1]], "for 1 requests, asked for 2"),
        ([[1], [2], [3]], "for 3 requests, asked for 2"),
        ([[1], None], "returned None for a request"),
        ([[1], 2], "returned 2 for a request"),
        ([[1], ["x"]], "returned ['x'] for a request"),
    ],
)
def test_anything_else_is_named(answer: Any, words: str) -> None:
    with pytest.raises(CustomProposerError) as raised:
        drafts(answer)
    message = str(raised.value)
    assert message.startswith("speculative_config.model='a.B': its propose() ")
    assert words in message


def test_a_step_with_fewer_drafts_than_k_gets_no_more(warnings: Any) -> None:
    """vLLM does not tell the class what the schedule of K says for this batch."""
    for num_reqs, longest in ((1, 3), (2, 1), (3, 0)):
        found = drafts([[1, 2, 3]] * num_reqs, num_reqs, num_drafts=longest)
        assert found == [[1, 2, 3][:longest]] * num_reqs
    assert warnings() == []


def test_the_instance_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr(module, "create_custom_proposer", lambda config: made.append(config) or 7)
    config = make_config()
    assert CustomClassDrafter.create(make_engine(config)).custom == 7
    assert made == [config]


def test_weights_are_loaded_by_a_class_that_has_some() -> None:
    """vLLM's CPU runner calls ``load_model`` whether it is there or not."""
    loaded: list[Any] = []
    for custom in (SimpleNamespace(load_model=loaded.append), Says([])):
        CustomClassDrafter(custom, make_config()).load_model("the target")
    assert loaded == ["the target"]


def test_what_runners_ask_of_every_drafter_does_nothing() -> None:
    """vllm-ascend's warms every drafter up, with arguments of its own."""
    drafter = CustomClassDrafter(Says([]), make_config())
    drafter.warm_up()
    drafter.dummy_run(num_tokens=8, in_graph_capturing=True)
    assert drafter.take_last_draft_probs() is None
