"""On the NPU the first phases of ``train`` keep the target's own answers and hidden states."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.ascend.matrix import MODES
from tests.ascend.modules import run_module
from tests.e2e.states import expected_states, transformers_model
from tests.training.phases.small import CHAT, ENGINE, TEXTS, write_settings
from vllm_ascend_spec.training.answer_file import read_answers
from vllm_ascend_spec.training.answers import Sampling
from vllm_ascend_spec.training.output import Output
from vllm_ascend_spec.training.shards import ShardReader


def run_phase(name: str, output: Path) -> list[str]:
    words = ("vllm_ascend_spec.training.phases.run", name, str(output))
    done = run_module(*words, VLLM_LOGGING_LEVEL="INFO")
    assert done.returncode == 0, done.stderr[-4000:]
    assert "device_config=npu" in done.stderr
    return done.stdout.splitlines()


@pytest.mark.nightly
@torch.no_grad()
def test_answers_and_states(tmp_path: Path) -> None:
    prompts = tmp_path / "given.jsonl"
    records = [*({"prompt": text} for text in TEXTS[:5]), CHAT]
    prompts.write_text("".join(json.dumps(record) + "\n" for record in records))
    output = write_settings(
        tmp_path / "out",
        prompts=(prompts,),
        sampling=Sampling(max_tokens=8),
        engine={**ENGINE, **MODES["eager"]},
    ).output
    assert any(line.startswith("answers: 4 of 4") for line in run_phase("answers", output))
    assert any(line.startswith("states: 4 of 4") for line in run_phase("states", output))
    answers = {each.id: each for each in read_answers("--output", Output(output).answers)}
    store = ShardReader(Output(output).states)
    assert set(store.lengths) == set(answers)
    assert max(store.lengths.values()) > ENGINE["max_num_batched_tokens"]
    for name, answer in answers.items():
        sample = store.read(name)
        assert sample.token_ids.tolist() == answer.all_token_ids()[:-1]
        logits = transformers_model()(sample.token_ids[None].long()).logits[0]
        begin = len(answer.prompt_token_ids) - 1
        assert logits[begin:].argmax(-1).tolist() == list(answer.token_ids)
        expected = expected_states(sample.token_ids)
        scale = expected.abs().amax(dim=(0, 2), keepdim=True)
        assert ((sample.hidden_states - expected).abs() / scale).max() < 1e-5
