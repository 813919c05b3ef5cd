"""The mixin swaps our parts in and forwards; it computes nothing."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.verification.requests import VOCAB, Request, SamplingParams, sampling_metadata
from vllm_ascend_spec.config.schema import SpecOptions
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.verification.draftless import draftless_metadata
from vllm_ascend_spec.verification.sampler import SpecVerifier
from vllm_ascend_spec.worker import runner as runner_module
from vllm_ascend_spec.worker.runner import SpecRunnerMixin

LONGEST_RUNNER = 60


class Stock:
    """The part of vLLM's runner that the mixin builds on."""

    def __init__(self, **attributes: Any) -> None:
        self.sampled: list[tuple[Any, Any]] = []
        self.grammars: list[Any] = []
        vars(self).update(attributes)

    def _sample(self, logits: Any, spec_decode_metadata: Any) -> str:
        self.sampled.append((logits, spec_decode_metadata))
        return "the stock runner's output"

    def sample_tokens(self, grammar_output: Any) -> str:
        self.grammars.append(grammar_output)
        return "the stock runner's tokens"


class Runner(SpecRunnerMixin, Stock):
    """Both, in the order that the docstring asks for."""


def make_engine(additional: dict[str, Any] | None = None) -> Any:
    return SimpleNamespace(
        additional_config=additional or {},
        speculative_config=SimpleNamespace(
            rejection_sample_method="standard", num_speculative_tokens=3
        ),
        model_config=SimpleNamespace(logprobs_mode="raw_logprobs"),
    )


def test_file_is_short_for_it_only_forwards() -> None:
    assert runner_module.__file__
    assert len(Path(runner_module.__file__).read_text().splitlines()) < LONGEST_RUNNER


def test_nothing_is_installed_without_speculation_or_off_the_last_rank(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("resolve_options", "create_proposer", "SpecVerifier"):
        monkeypatch.setattr(runner_module, name, None)
    runner = Runner(drafter="stock", vllm_config=make_engine(), device="cpu", sampler="stock")
    before = dict(vars(runner))
    runner.install_spec_parts()
    assert vars(runner) == before


def test_stock_parts_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []

    def create_proposer(*arguments: Any) -> str:
        asked.append(arguments)
        return "our proposer"

    monkeypatch.setattr(runner_module, "create_proposer", create_proposer)
    section = {"draft_loop": "stock", "verify_backend": "reference"}
    engine = make_engine({"ascend_spec": section})
    runner = Runner(
        drafter="stock",
        rejection_sampler="stock",
        vllm_config=engine,
        device="the device",
        sampler=torch.nn.Identity(),
    )
    runner.install_spec_parts()
    assert asked == [(engine, "the device", runner, SpecOptions(**section))]
    assert runner.drafter == "our proposer"
    assert isinstance(runner.rejection_sampler, SpecVerifier)
    assert runner.rejection_sampler.sampler is runner.sampler
    assert runner.rejection_sampler.backend == "reference"


def test_wrong_options_leave_the_stock_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "create_proposer", None)
    engine = make_engine({"ascend_spec": {"verify_backend": "abacus"}})
    runner = Runner(rejection_sampler="stock", drafter="stock", vllm_config=engine)
    with pytest.raises(ConfigError, match="abacus"):
        runner.install_spec_parts()
    assert (runner.rejection_sampler, runner.drafter) == ("stock", "stock")


def make_runner(seeded: bool, **attributes: Any) -> Runner:
    request = Request(SamplingParams(temperature=1.0), prompt=[1], output=[2])
    generators = {0: torch.Generator()} if seeded else {}
    sampling = sampling_metadata([request], generators=generators)
    return Runner(input_batch=SimpleNamespace(sampling_metadata=sampling), **attributes)


LOGITS = torch.zeros(1, VOCAB)


@pytest.mark.parametrize("seeded", [False, True])
def test_steps_with_drafts_are_forwarded_as_they_are(seeded: bool) -> None:
    runner = make_runner(seeded, rejection_sampler="ours")
    assert runner._sample(LOGITS, "drafts") == "the stock runner's output"
    assert runner.sampled == [(LOGITS, "drafts")]


@pytest.mark.parametrize(
    ("seeded", "attributes"), [(False, {"rejection_sampler": "ours"}), (True, {}), (False, {})]
)
def test_steps_without_drafts_are_forwarded_as_they_are(
    seeded: bool, attributes: dict[str, str]
) -> None:
    # Without a rejection sampler there is nowhere else to send them, seeds or not.
    runner = make_runner(seeded, **attributes)
    assert runner._sample(LOGITS, None) == "the stock runner's output"
    assert runner.sampled == [(LOGITS, None)]


def test_steps_without_drafts_but_with_seeds_go_to_the_verifier() -> None:
    runner = make_runner(True, rejection_sampler="ours")
    assert runner._sample(LOGITS, None) == "the stock runner's output"
    ((logits, metadata),) = runner.sampled
    assert logits is LOGITS
    expected = draftless_metadata(runner.input_batch.sampling_metadata, LOGITS)
    assert expected is not None
    assert type(metadata) is type(expected)
    assert metadata.num_draft_tokens == expected.num_draft_tokens == [0]


class Masks:
    """A verifier that notes what it is to mask."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def mask_logits(self, *arguments: Any) -> None:
        self.calls.append(arguments)


STATE = SimpleNamespace(logits="the logits", scheduler_output="what was scheduled")
BATCH = SimpleNamespace(req_ids=["a", "b"])


def test_masks_of_structured_output_go_to_the_verifier_and_not_to_the_stock_runner() -> None:
    verifier = Masks()
    runner = Runner(rejection_sampler=verifier, execute_model_state=STATE, input_batch=BATCH)
    assert runner.sample_tokens("masks") == "the stock runner's tokens"
    assert verifier.calls == [("the logits", "what was scheduled", "masks", ["a", "b"])]
    assert runner.grammars == [None]
    # Taking it out is the stock runner's to do, and only it knows the rest of the state.
    assert runner.execute_model_state is STATE


def test_steps_without_structured_output_mask_nothing() -> None:
    verifier = Masks()
    runner = Runner(rejection_sampler=verifier, execute_model_state=STATE, input_batch=BATCH)
    assert runner.sample_tokens(None) == "the stock runner's tokens"
    assert verifier.calls == []
    assert runner.grammars == [None]


def test_without_speculation_the_stock_runner_masks() -> None:
    runner = Runner(execute_model_state=STATE, input_batch=BATCH)
    assert runner.sample_tokens("masks") == "the stock runner's tokens"
    assert runner.grammars == ["masks"]


def test_ranks_that_ran_no_logits_forward_what_they_got() -> None:
    """As all but the last pipeline rank: there is no state, and the stock runner knows why."""
    verifier = Masks()
    runner = Runner(rejection_sampler=verifier, execute_model_state=None, input_batch=BATCH)
    assert runner.sample_tokens("masks") == "the stock runner's tokens"
    assert verifier.calls == []
    assert runner.grammars == ["masks"]


def test_logits_of_an_inference_step_can_be_masked() -> None:
    """They are inference tensors, which may be written in inference mode alone."""

    class Writes(Masks):
        def mask_logits(self, *arguments: Any) -> None:
            arguments[0].fill_(1.0)

    with torch.inference_mode():
        state = SimpleNamespace(logits=torch.zeros(2, VOCAB), scheduler_output=None)
    runner = Runner(rejection_sampler=Writes(), execute_model_state=state, input_batch=BATCH)
    runner.sample_tokens("masks")
    assert bool((state.logits == 1).all())


def test_the_stock_state_and_batch_have_what_is_read_here() -> None:
    from vllm.v1.worker.gpu_input_batch import InputBatch
    from vllm.v1.worker.gpu_model_runner import ExecuteModelState, GPUModelRunner

    assert {"logits", "scheduler_output"} <= set(ExecuteModelState._fields)
    assert isinstance(InputBatch.req_ids, property)
    parameters = list(inspect.signature(GPUModelRunner.sample_tokens).parameters)
    assert parameters == list(inspect.signature(SpecRunnerMixin.sample_tokens).parameters)


@pytest.mark.parametrize("method", ["standard", "block", "synthetic"])
def test_verifier_gets_the_resolved_rule(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "create_proposer", lambda *_: None)
    engine = make_engine()
    engine.speculative_config.rejection_sample_method = method
    engine.speculative_config.synthetic_acceptance_rates = [0.5]
    runner = Runner(
        rejection_sampler="stock", vllm_config=engine, device="cpu", sampler=torch.nn.Identity()
    )
    runner.install_spec_parts()
    assert runner.rejection_sampler.rule == ("block" if method == "block" else "token")
    assert (runner.rejection_sampler.synthetic is not None) == (method == "synthetic")
