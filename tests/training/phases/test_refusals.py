"""What a phase refuses, it refuses in one line and before an engine starts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from tests.training.phases.small import RECORDED, write_settings
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.training import shard_layout
from vllm_ascend_spec.training.answer_file import Answer, open_answers, read_answers
from vllm_ascend_spec.training.output import Output
from vllm_ascend_spec.training.phases import answers, states
from vllm_ascend_spec.training.settings import Settings
from vllm_ascend_spec.training.shards import Sample, open_writer

Run = Callable[..., str]


@pytest.fixture(autouse=True)
def _no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    for phase in (answers, states):
        monkeypatch.setattr(phase, "start_engine", lambda *_: pytest.fail("an engine was started"))


def settings_with(folder: Path, records: list[Any], **changes: Any) -> Settings:
    path = folder / "given.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return write_settings(folder / "out", **{"prompts": (path,), "holdout": 1, **changes})


def told(phase: Any, settings: Settings) -> str:
    with pytest.raises(ConfigError) as raised:
        phase.run(settings, lambda line: None)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def recorded(count: int) -> list[dict[str, Any]]:
    return [{**RECORDED, "prompt_token_ids": [5, n]} for n in range(count)]


def test_a_wrong_line_ends_the_phase_with_that_line(tmp_path: Path) -> None:
    settings = settings_with(tmp_path, [{"prompt": "x"}, {"text": "y"}])
    done = subprocess.run(
        [sys.executable, "-m", "vllm_ascend_spec.training.phases.run", "answers", settings.output],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("vllm-ascend-spec train: error: --prompts=")
    assert 'line 2: has no "prompt", "messages" or "conversations"' in line


def test_tokens_that_the_target_does_not_have_are_refused(tmp_path: Path) -> None:
    records = [*recorded(3), {"prompt_token_ids": [4, 1 << 20]}]
    found = told(answers, settings_with(tmp_path, records))
    assert "line 4: has token 1048576, which the target does not have; valid: 0 to " in found


def test_held_out_prompts_that_are_all_too_long_are_refused(tmp_path: Path) -> None:
    settings = settings_with(tmp_path, [{"prompt": f"{n} + x\n" * 90} for n in range(9)], holdout=8)
    settings = Settings(**{**vars(settings), "max_model_len": 16})
    assert "all 8 prompts held out have --max-model-len=16 tokens or more" in told(
        answers, settings
    )


def test_answers_of_other_settings_are_refused(tmp_path: Path) -> None:
    settings = settings_with(tmp_path, recorded(3))
    answers.run(settings, lambda line: None)
    Output(settings.output).held_out.unlink()
    other = Settings(**{**vars(settings), "engine": {"quantization": None}, "max_model_len": 128})
    assert "its answers were made with max_model_len 160, not 128" in told(answers, other)
    faster = Settings(**{**vars(settings), "engine": {"max_num_seqs": 64}})
    answers.run(faster, lambda line: None)


def test_prompts_whose_answers_were_all_recorded_need_no_engine(tmp_path: Path) -> None:
    settings, shown = settings_with(tmp_path, recorded(9)), list[str]()
    assert not answers.is_done(settings)
    answers.run(settings, shown.append)
    assert answers.is_done(settings)
    assert shown == ["answers: 0 of 8 prompts are answered, and 8 more were recorded with them"]
    assert len(list(read_answers("--output", Output(settings.output).answers))) == 8


@pytest.fixture
def answered(tmp_path: Path) -> Settings:
    """A phase of answers that is done: eight of six tokens, and one of a single token."""
    settings = settings_with(tmp_path, recorded(9))
    answers.run(settings, lambda line: None)
    made_by = json.loads(Output(settings.output).answers.read_text().splitlines()[0])["made_by"]
    with open_answers("--output", Output(settings.output).answers, made_by) as file:
        file.append([Answer("f" * 32, (1, 2), (3,), "stop")])
    return settings


def fill(settings: Settings, count: int) -> shard_layout.Layout:
    """Store states of some of the answers, and return the layout."""
    output, model = Output(settings.output), states.read_model(settings)
    layout = shard_layout.Layout(
        model.hash, tuple(range(model.num_layers + 1)), model.hidden_size, "float32"
    )
    with open_writer("--output", output.states, layout) as writer:
        for answer in list(read_answers("--output", output.answers))[:count]:
            tokens = torch.tensor(answer.all_token_ids()[:-1])
            shape = len(tokens), len(layout.layers), layout.hidden_size
            writer.add(Sample(answer.id, tokens, tokens > 0, torch.zeros(shape)))
    return layout


def free(monkeypatch: pytest.MonkeyPatch, num_bytes: int) -> None:
    usage = type("Usage", (), {"free": num_bytes})
    monkeypatch.setattr(shard_layout.shutil, "disk_usage", lambda path: usage)


def test_a_disk_that_is_too_small_is_told_with_the_size(
    answered: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = fill(answered, 3)
    # Of those that are missing: their shard and, until it is there, the files of their batch.
    needed = layout.bytes_of(2 * 5 * 5)
    free(monkeypatch, needed - 1)
    found = told(states, answered)
    assert found.startswith("--output=")
    assert "hidden states: 50 tokens x " in found
    assert "are free; valid: " in found
    free(monkeypatch, needed)
    with pytest.raises(pytest.fail.Exception, match="an engine was started"):
        states.run(answered, lambda line: None)


def test_what_is_stored_needs_no_room_and_no_engine(
    answered: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(answered, 8)
    free(monkeypatch, 0)
    shown: list[str] = []
    assert not states.is_done(answered)
    states.run(answered, shown.append)
    # There is nothing to draft in the answer of a single token.
    assert shown[-1] == "states: those of 8 of 8 prompts are stored"
    assert states.is_done(answered)
    # Until there is another answer.
    with Output(answered.output).answers.open("a") as file:
        file.write("\n")
    assert not states.is_done(answered)


def test_states_of_another_target_are_not_mixed_in(answered: Settings) -> None:
    fill(answered, 3)
    other = Settings(**{**vars(answered), "dtype": "bfloat16"})
    assert "holds hidden states with dtype 'float32', not 'bfloat16'" in told(states, other)


class Writes:
    """An engine whose states are all the same number."""

    def __init__(self, folder: Path, layout: shard_layout.Layout, value: float) -> None:
        self.folder, self.layout, self.value = folder, layout, value

    def generate(self, prompts: list[Any], *_: Any, **__: Any) -> list[Any]:
        return [self.answer(each["prompt_token_ids"]) for each in prompts]

    def answer(self, tokens: list[int]) -> Any:
        shape = len(tokens), len(self.layout.layers), self.layout.hidden_size
        path = self.folder / f"{len(list(self.folder.iterdir()))}.safetensors"
        states = {"token_ids": torch.tensor(tokens), "hidden_states": torch.full(shape, self.value)}
        save_file(states, path)
        path.with_name(f"{path.name}.lock").touch()
        return SimpleNamespace(kv_transfer_params={"hidden_states_path": str(path)})


@pytest.mark.parametrize("value", [1.0, float("inf"), float("nan")])
def test_states_that_are_not_finite_are_told_before_they_are_stored(
    answered: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: float
) -> None:
    layout, folder = fill(answered, 3), tmp_path / "files"
    folder.mkdir()
    monkeypatch.setattr(states, "start_engine", lambda *_: Writes(folder, layout, value))
    if value == 1.0:
        states.run(answered, lambda line: None)
        assert states.is_done(answered)
        # Files are deleted as soon as they are read.
        assert list(folder.iterdir()) == []
    else:
        found = told(states, answered)
        assert found.startswith("--dtype='float32': a hidden state is infinite or not a number")
