"""vLLM's runner asks our drafter, with everything that the step has."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

from vllm.v1.worker.gpu_model_runner import GPUModelRunner

from vllm_ascend_spec.worker.vllm_runner import VllmRunnerMixin

GIVEN = {
    "scheduler_output": SimpleNamespace(num_spec_tokens_to_schedule=2),
    "sampled_token_ids": [[7], []],
    "sampling_metadata": "how requests are sampled",
    "hidden_states": "all states",
    "sample_hidden_states": "states of sampled rows",
    "aux_hidden_states": ["inner states"],
    "spec_decode_metadata": "which rows were drafts",
    "common_attn_metadata": "attention",
    "slot_mappings": "slots",
}


class Stock:
    """The part of vLLM's runner that the mixin builds on."""

    def propose_draft_token_ids(self, *arguments: Any) -> Any:
        return ["by vLLM", *arguments]


class Runner(VllmRunnerMixin, Stock):
    def __init__(self, drafter: Any) -> None:
        self.drafter, self.num_spec_tokens = drafter, 3
        self.input_batch = SimpleNamespace(req_ids=["a", "b"])


class Drafter:
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def draft(self, step: Any) -> Any:
        self.step = step
        return self.answer(step)

    def take_last_draft_probs(self) -> None:
        return None


def test_a_step_has_all_that_vllm_gives() -> None:
    runner = Runner(Drafter(lambda step: [[1, 2], []]))
    assert runner.propose_draft_token_ids(**GIVEN) == [[1, 2], []]
    step = runner.drafter.step
    assert step.k == 2
    assert step.batch is runner.input_batch
    assert (step.sampled_token_ids, step.sampling) == ([[7], []], GIVEN["sampling_metadata"])
    assert (step.hidden_states, step.sample_hidden_states) == (
        "all states",
        "states of sampled rows",
    )
    assert (step.aux_hidden_states, step.slot_mappings) == (["inner states"], "slots")
    assert (step.verification, step.attention) == ("which rows were drafts", "attention")


def test_drafters_that_extend_vllms_go_through_its_runner() -> None:
    runner = Runner(Drafter(lambda step: step.draft_by_stock()))
    assert runner.propose_draft_token_ids(**GIVEN) == ["by vLLM", *GIVEN.values()]


def test_the_signature_is_vllms() -> None:
    ours = inspect.signature(VllmRunnerMixin.propose_draft_token_ids)
    theirs = inspect.signature(GPUModelRunner.propose_draft_token_ids)
    assert list(ours.parameters) == list(theirs.parameters)
