"""Answers and hidden states are the target's own, also when both phases were killed many times.

All tests here look at the same two runs of :mod:`tests.training.phases.killed`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest
import torch

from tests.e2e.states import LAYERS, expected_states, transformers_model
from tests.marks import requires_hidden_states
from tests.training.phases.killed import SHOWN
from tests.training.phases.small import (
    CHAT,
    MAX_MODEL_LEN,
    OTHERS_ANSWER,
    RECORDED,
    RECORDS,
    TOO_LONG,
    write_settings,
)
from vllm_ascend_spec.training.answer_file import Answer, read_answers
from vllm_ascend_spec.training.output import Output
from vllm_ascend_spec.training.phases import answers, states
from vllm_ascend_spec.training.prompts import Place, parse_record, split_held_out
from vllm_ascend_spec.training.settings import Settings
from vllm_ascend_spec.training.shards import Sample, ShardReader
from vllm_ascend_spec.training.target import target_hash

pytestmark = [pytest.mark.e2e, requires_hidden_states]


def id_of(record: object) -> str:
    return parse_record(record, Place("--prompts", Path("p.jsonl"), 1)).id


TRAIN, HELD_OUT = split_held_out(map(id_of, RECORDS), 2)


@dataclass(frozen=True)
class Runs:
    """An undisturbed run and one that was killed.

    Attributes:
        settings: of the undisturbed one.
        killed: output of the other one.
    """

    settings: Settings
    killed: Output

    @property
    def whole(self) -> Output:
        return Output(self.settings.output)

    @cached_property
    def answers(self) -> dict[str, Answer]:
        return {each.id: each for each in read_answers("--output", self.whole.answers)}

    @cached_property
    def samples(self) -> list[Sample]:
        reader = ShardReader(self.whole.states)
        return [reader.read(name) for name in reader.lengths]

    @cached_property
    def shown(self) -> list[tuple[str, bool, list[str]]]:
        """For each start the phase, whether it was killed, and what it had shown."""
        return [tuple(each) for each in json.loads((self.killed.folder / SHOWN).read_text())]


def run_both(folder: Path, kills: int, seed: int) -> Runs:
    settings = write_settings(folder / "whole")
    killed = write_settings(folder / "killed").output
    words = [str(settings.output), str(killed), str(kills), str(seed)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.training.phases.killed", *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "VLLM_LOGGING_LEVEL": "ERROR"},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return Runs(settings, Output(killed))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return run_both(tmp_path_factory.mktemp("train"), kills=1, seed=0)


def check_same(runs: Runs) -> None:
    assert runs.killed.answers.read_bytes() == runs.whole.answers.read_bytes()
    assert runs.killed.held_out.read_bytes() == runs.whole.held_out.read_bytes()
    again = ShardReader(runs.killed.states)
    assert sorted(again.lengths) == sorted(each.id for each in runs.samples)
    for sample in runs.samples:
        other = again.read(sample.id)
        for part in ("token_ids", "loss_mask", "hidden_states"):
            assert torch.equal(getattr(other, part), getattr(sample, part)), (sample.id, part)
    # Nothing is left of batches that were killed.
    for output in (runs.whole, runs.killed):
        assert {each.name for each in output.folder.iterdir()} <= {
            "answers.jsonl", "held-out.json", "settings.json", SHOWN, "states"
        }  # fmt: skip
        assert not list(output.states.glob("*.tmp"))


def test_a_run_that_was_killed_ends_as_an_undisturbed_one(runs: Runs) -> None:
    check_same(runs)
    # On a busy machine one may end before it is killed.
    assert sum(killed for _, killed, _ in runs.shown) >= 1


@pytest.mark.nightly
@pytest.mark.parametrize("seed", [1, 2])
def test_a_run_that_was_killed_more_often_does_so_too(tmp_path: Path, seed: int) -> None:
    runs = run_both(tmp_path, kills=3, seed=seed)
    check_same(runs)
    assert sum(killed for _, killed, _ in runs.shown) >= 4


def test_a_second_start_shows_what_the_first_one_left(runs: Runs) -> None:
    (whole_answers, whole_states, *_, last_states) = [lines for _, _, lines in runs.shown]
    count = len(TRAIN)
    assert whole_answers[0] == (
        f"answers: 0 of {count} prompts are answered, and 1 more were recorded with them"
    )
    # Recorded: one. Too long: another one.
    assert [line.partition(" prompts,")[0] for line in whole_answers[1:-1]] == [
        f"answers: {n} of {count}" for n in (3, 5, 7, 9, 10)
    ]
    assert whole_answers[-1] == (
        f"answers: 1 of {len(RECORDS)} prompts are left out: of --max-model-len={MAX_MODEL_LEN} "
        "tokens or more"
    )
    tokens = sum(len(each.token_ids) for each in runs.samples)
    width = runs.samples[0].hidden_states.shape[-1]
    assert whole_states[0].startswith(
        f"hidden states: {tokens:,} tokens x {len(LAYERS)} layers x {width} x 4 bytes = "
    )
    assert whole_states[1] == f"states: those of 0 of {count - 1} prompts are stored"
    assert whole_states[-1].startswith(f"states: {count - 1} of {count - 1} prompts, ")
    assert last_states[1] != whole_states[1]
    assert last_states[-1].partition(",")[0] == whole_states[-1].partition(",")[0]


def test_prompts_held_out_are_never_answered(runs: Runs) -> None:
    assert set(runs.answers) == TRAIN - {id_of({"prompt": TOO_LONG})}
    held_out = {tuple(each) for each in json.loads(runs.whole.held_out.read_text())}
    assert len(held_out) == len(HELD_OUT) == 2
    assert not held_out & {each.prompt_token_ids for each in runs.answers.values()}


@torch.no_grad()
def test_answers_are_what_transformers_goes_on_with(runs: Runs) -> None:
    differ = set()
    for answer in runs.answers.values():
        logits = transformers_model()(torch.tensor([answer.all_token_ids()])).logits[0]
        begin = len(answer.prompt_token_ids) - 1
        if logits[begin:-1].argmax(-1).tolist() != list(answer.token_ids):
            differ.add(answer.id)
    # What was recorded is taken as it is, so its answer is known; another target's was asked again.
    assert differ == {id_of(RECORDED)}
    assert runs.answers[id_of(RECORDED)].token_ids == tuple(RECORDED["token_ids"])
    assert runs.answers[id_of(OTHERS_ANSWER)].prompt_token_ids == (7, 8, 9)


def test_a_conversation_is_answered_as_the_template_has_it(runs: Runs) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(runs.settings.model)
    text = tokenizer.decode(runs.answers[id_of(CHAT)].prompt_token_ids)
    assert CHAT["messages"][0]["content"] in text
    assert text != CHAT["messages"][0]["content"]


def test_states_are_those_of_transformers_before_the_last_norm(runs: Runs) -> None:
    """Some prompts are longer than what the engine reads in a step."""
    assert max(len(each.token_ids) for each in runs.samples) > 2 * 48
    model = transformers_model()
    for sample in runs.samples:
        expected = expected_states(sample.token_ids)
        assert sample.hidden_states.shape == expected.shape
        scale = expected.abs().amax(dim=(0, 2), keepdim=True)
        assert ((sample.hidden_states - expected).abs() / scale).max() < 1e-5
        last, token_ids = sample.hidden_states[:, -1], sample.token_ids[None].long()
        with torch.no_grad():
            logits = model(token_ids).logits[0]
            normed = model.model.norm(last)
            assert torch.allclose(model.lm_head(normed), logits, atol=1e-3)
            # A norm that was applied already would not go unnoticed.
            assert not torch.allclose(model.lm_head(model.model.norm(normed)), logits, atol=1e-3)


def test_the_loss_is_on_answers_alone(runs: Runs) -> None:
    assert {each.id for each in runs.samples} == set(runs.answers)
    for sample in runs.samples:
        answer = runs.answers[sample.id]
        # The target never read the last token.
        assert sample.token_ids.tolist() == answer.all_token_ids()[:-1]
        assert sample.token_ids[sample.loss_mask].tolist() == list(answer.token_ids[:-1])


def test_a_phase_that_is_done_starts_no_engine(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    for phase in (answers, states):
        assert phase.is_done(runs.settings)
        monkeypatch.setattr(phase, "read_model", None)
        shown: list[str] = []
        phase.run(runs.settings, shown.append)
        assert len(shown) == 1
        assert "in an earlier start" in shown[0]


def test_the_hash_is_of_the_target(runs: Runs) -> None:
    found = json.loads((runs.whole.states / "layout.json").read_text())
    assert found["target"] == target_hash(runs.settings.model)
