"""Phase c of ``train``: the head's tokens, from answers or from the head to go on from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.zoo import SHALLOW, ZOO
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.training.answer_file import Answer, open_answers
from vllm_ascend_spec.training.output import Output
from vllm_ascend_spec.training.phases import vocabulary
from vllm_ascend_spec.training.settings import Settings

# The answer's tokens are counted, the prompt's are not.
ANSWERS = [Answer("a", (7, 7, 7, 7), (500, 501), "stop"), Answer("b", (8,), (500,), "stop")]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    found = Settings(SHALLOW / "target", "eagle3", (), tmp_path, draft_vocab_size=3)
    with open_answers("--output", Output(tmp_path).answers, {}) as answers:
        answers.append(ANSWERS)
    return found


def run(settings: Settings) -> list[str]:
    told: list[str] = []
    vocabulary.run(settings, told.append)
    return told


def test_tokens_of_the_answers_are_kept(settings: Settings, tmp_path: Path) -> None:
    assert not vocabulary.is_done(settings)
    told = run(settings)
    assert told == [
        "draft vocabulary: 3 of 4,096 tokens, which are 100.00% of the answers' text; 1 of them "
        "are in no answer"
    ]
    folder = Output(tmp_path).vocabulary
    d2t, t2d = np.load(folder / "d2t.npy"), np.load(folder / "t2d.npy")
    # The end of text is special.
    assert (d2t + np.arange(3)).tolist() == np.flatnonzero(t2d).tolist() == [0, 500, 501]
    assert vocabulary.is_done(settings)
    assert run(settings) == []


def test_the_whole_vocabulary_needs_no_tables(settings: Settings, tmp_path: Path) -> None:
    whole = replace(settings, draft_vocab_size=None)
    assert vocabulary.is_done(whole)
    assert run(whole) == []
    assert not Output(tmp_path).vocabulary.exists()


def test_a_head_to_go_on_from_keeps_its_tokens(settings: Settings, tmp_path: Path) -> None:
    begun = replace(settings, begin_with=ZOO / "eagle3", draft_vocab_size=None)
    told = run(begun)
    assert told[0].startswith("draft vocabulary: 3,072 of 4,096 tokens")
    found = np.load(Output(tmp_path).vocabulary / "d2t.npy")
    expected = load_file_of(ZOO / "eagle3")
    assert found.tolist() == expected.tolist()


def load_file_of(head: Path) -> np.ndarray:
    from safetensors import safe_open

    with safe_open(head / "model.safetensors", framework="np") as file:
        found: np.ndarray = file.get_tensor("d2t")
    return found


def test_a_head_with_every_token_has_no_tables(settings: Settings, tmp_path: Path) -> None:
    begun = replace(settings, begin_with=ZOO / "target", draft_vocab_size=None)
    assert run(begun) == [
        "draft vocabulary: the head to go on from drafts every token of the target's"
    ]
    assert not Output(tmp_path).vocabulary.exists()


def test_too_small_a_vocabulary_is_refused(settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--draft-vocab-size"):
        run(replace(settings, draft_vocab_size=9999))
    assert not Output(tmp_path).vocabulary.exists()


def test_a_head_of_a_larger_target_is_refused(settings: Settings, tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    state = {"d2t": np.array([5000])}
    save_file(state, tmp_path / "model.safetensors")

    with pytest.raises(ConfigError, match=r"--from.*4096"):
        run(replace(settings, begin_with=tmp_path))
