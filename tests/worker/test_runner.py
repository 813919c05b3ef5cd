"""The mixin swaps our parts in and forwards; it computes nothing."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.speculation import carry, make_speculation
from tests.verification.requests import VOCAB, Request, SamplingParams, sampling_metadata
from vllm_ascend_spec.verification.no_draft_step import no_draft_metadata
from vllm_ascend_spec.verification.sampler import SpecVerifier
from vllm_ascend_spec.worker import runner as runner_module
from vllm_ascend_spec.worker.runner import SpecRunnerMixin

LONGEST_RUNNER = 100


class Stock:
    """The part of vLLM's runner that the mixin builds on."""

    def __init__(self, **attributes: Any) -> None:
        self.sampled: list[tuple[Any, Any]] = []
        self.grammars: list[Any] = []
        vars(self).update(attributes)

    def _sample(self, logits: Any, spec_decode_metadata: Any) -> Any:
        self.sampled.append((logits, spec_decode_metadata))
        self.noise_of_step = self.rejection_sampler.noise
        return self.output

    def sample_tokens(self, grammar_output: Any) -> str:
        self.grammars.append(grammar_output)
        return "the stock runner's tokens"


class Runner(SpecRunnerMixin, Stock):
    """Both, in the order that the docstring asks for."""


def make_engine(**given: Any) -> Any:
    options = {
        "rejection_sample_method": "standard",
        "num_speculative_tokens": 3,
        "method": "eagle",
        "max_model_len": 64,
    }
    return SimpleNamespace(
        speculative_config=carry(make_speculation(**given), **options),
        model_config=SimpleNamespace(logprobs_mode="raw_logprobs", max_model_len=64),
    )


def test_file_is_short_for_it_only_forwards() -> None:
    assert runner_module.__file__
    assert len(Path(runner_module.__file__).read_text().splitlines()) < LONGEST_RUNNER


class Drafter:
    """Says what it was told to, and notes what it was asked."""

    wants_aux_hidden_states = True

    def __init__(self, drafts: Any = None, probs: Any = None) -> None:
        self.drafts, self.probs = drafts, probs
        self.steps: list[Any] = []
        self.warmed_up = 0

    def warm_up(self) -> None:
        self.warmed_up += 1

    def draft(self, step: Any) -> Any:
        self.steps.append(step)
        return self.drafts

    def take_last_draft_probs(self) -> Any:
        probs, self.probs = self.probs, None
        return probs


def test_nothing_is_installed_off_the_last_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """There vLLM makes neither a drafter nor a rejection sampler."""
    for name in ("speculation_of", "create_drafter", "SpecVerifier"):
        monkeypatch.setattr(runner_module, name, None)
    runner = Runner(vllm_config=make_engine(), device="cpu", sampler="stock")
    before = dict(vars(runner))
    runner.complete_spec_parts()
    assert vars(runner) == before


def test_without_speculation_there_is_a_verifier_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("speculation_of", "create_drafter"):
        monkeypatch.setattr(runner_module, name, None)
    engine = make_engine()
    engine.speculative_config = None
    runner = Runner(vllm_config=engine, device="cpu", sampler="stock")
    before = dict(vars(runner))
    runner.complete_spec_parts()
    verifier = vars(runner).pop("rejection_sampler")
    assert isinstance(verifier, SpecVerifier)
    assert (verifier.sampler, verifier.seeds_for) == ("stock", "none")
    assert vars(runner) == before


def test_drafter_is_made_of_what_was_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    ours = Drafter()
    monkeypatch.setattr(runner_module, "create_drafter", lambda given: asked.append(given) or ours)
    config = make_engine(draft_loop="stock")
    runner = Runner(vllm_config=config, device="the device")
    assert runner.create_drafter() is ours
    (engine,) = asked
    assert (engine.vllm_config, engine.device, engine.runner) == (config, "the device", runner)
    assert engine.speculation == make_speculation(draft_loop="stock")
    # The target is asked for the states of inner layers where the drafter reads them.
    assert runner.use_aux_hidden_state_outputs is True


def test_verifier_is_replaced_and_the_drafter_warmed_up() -> None:
    drafter = Drafter()
    runner = Runner(
        drafter=drafter,
        rejection_sampler="stock",
        vllm_config=make_engine(verify_backend="reference"),
        sampler=torch.nn.Identity(),
    )
    runner.complete_spec_parts()
    assert isinstance(runner.rejection_sampler, SpecVerifier)
    assert runner.rejection_sampler.sampler is runner.sampler
    assert runner.rejection_sampler.backend == "reference"
    assert drafter.warmed_up == 1


def test_a_config_of_another_platform_leaves_the_stock_parts() -> None:
    engine = make_engine()
    engine.speculative_config = SimpleNamespace(method="eagle")
    runner = Runner(rejection_sampler="stock", drafter="stock", vllm_config=engine)
    with pytest.raises(RuntimeError, match="not built on a platform"):
        runner.complete_spec_parts()
    assert (runner.rejection_sampler, runner.drafter) == ("stock", "stock")


STEP = SimpleNamespace(batch=SimpleNamespace(req_ids=["a", "b"]))


def test_the_drafter_is_asked_once_and_its_distributions_are_kept() -> None:
    drafter = Drafter([[1], []], probs="the distributions")
    runner = Runner(drafter=drafter)
    assert runner.draft(STEP) == [[1], []]
    assert drafter.steps == [STEP]
    assert runner._draft_probs == "the distributions"
    assert runner._draft_prob_req_ids == ["a", "b"]
    # The batch may change before they are used.
    assert runner._draft_prob_req_ids is not STEP.batch.req_ids


def test_distributions_of_an_earlier_step_are_forgotten() -> None:
    runner = Runner(drafter=Drafter([[1]]), _draft_probs="old", _draft_prob_req_ids=["z"])
    runner.draft(STEP)
    assert (runner._draft_probs, runner._draft_prob_req_ids) == (None, None)


def test_distributions_that_a_stock_runner_took_stay() -> None:
    runner = Runner()

    class Prepared(Drafter):
        def draft(self, step: Any) -> Any:
            runner._draft_probs, runner._draft_prob_req_ids = "taken", ["a", "b"]
            return [[1], [2]]

    runner.drafter = Prepared()
    runner.draft(STEP)
    assert (runner._draft_probs, runner._draft_prob_req_ids) == ("taken", ["a", "b"])


OUTPUT = SimpleNamespace(sampled_token_ids=torch.tensor([[5]]))


def make_runner(seeded: bool) -> Runner:
    request = Request(SamplingParams(temperature=1.0), prompt=[1], output=[2])
    generators = {0: torch.Generator()} if seeded else {}
    runner = Runner(
        input_batch=SimpleNamespace(
            sampling_metadata=sampling_metadata([request], generators=generators),
            generators=generators,
            num_reqs=1,
            req_ids=["a"],
            random_reqs={"a"},
        ),
        seq_lens=torch.tensor([2], dtype=torch.int32),
        device=torch.device("cpu"),
        output=OUTPUT,
        rejection_sampler=SimpleNamespace(
            seeds_for="none", speculates=True, noise="of another step"
        ),
    )
    return runner


LOGITS = torch.zeros(1, VOCAB)


@pytest.mark.parametrize("seeded", [False, True])
def test_steps_with_drafts_are_forwarded_as_they_are(seeded: bool) -> None:
    runner = make_runner(seeded)
    drafts = SimpleNamespace(cu_num_draft_tokens=torch.tensor([1], dtype=torch.int32))
    assert runner._sample(LOGITS, drafts) is OUTPUT
    assert runner.sampled == [(LOGITS, drafts)]
    noise = runner.noise_of_step
    assert (noise is not None) == seeded
    assert runner.rejection_sampler.noise is None
    assert not seeded or noise.positions.tolist() == [1]


def test_steps_without_drafts_or_seeds_are_forwarded_as_they_are() -> None:
    runner = make_runner(seeded=False)
    assert runner._sample(LOGITS, None) is OUTPUT
    assert runner.sampled == [(LOGITS, None)]
    assert runner.rejection_sampler.noise is None


def test_steps_without_drafts_but_with_seeds_go_to_the_verifier() -> None:
    runner = make_runner(True)
    assert runner._sample(LOGITS, None) is OUTPUT
    ((logits, metadata),) = runner.sampled
    assert logits is LOGITS
    sampling = runner.input_batch.sampling_metadata
    expected = no_draft_metadata(sampling, 1, LOGITS, has_seeds=True)
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


def with_masks(verifier: Masks, state: Any = STATE, **more: Any) -> Any:
    return Runner(rejection_sampler=verifier, execute_model_state=state, input_batch=BATCH, **more)


def test_masks_of_structured_output_go_to_the_verifier_and_not_to_the_stock_runner() -> None:
    verifier = Masks()
    runner = with_masks(verifier, drafter=Drafter())
    assert runner.sample_tokens("masks") == "the stock runner's tokens"
    assert verifier.calls == [("the logits", "what was scheduled", "masks", ["a", "b"])]
    assert runner.grammars == [None]
    # Taking it out is the stock runner's to do, and only it knows the rest of the state.
    assert runner.execute_model_state is STATE


def test_steps_without_structured_output_mask_nothing() -> None:
    verifier = Masks()
    runner = with_masks(verifier, drafter=Drafter())
    assert runner.sample_tokens(None) == "the stock runner's tokens"
    assert verifier.calls == []
    assert runner.grammars == [None]


def test_without_speculation_the_stock_runner_masks() -> None:
    """Though there is a verifier, for requests with a seed."""
    verifier = Masks()
    runner = with_masks(verifier)
    assert runner.sample_tokens("masks") == "the stock runner's tokens"
    assert verifier.calls == []
    assert runner.grammars == ["masks"]


def test_ranks_that_ran_no_logits_forward_what_they_got() -> None:
    """As all but the last pipeline rank: there is no state, and the stock runner knows why."""
    verifier = Masks()
    runner = with_masks(verifier, None, drafter=Drafter())
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
    runner = with_masks(Writes(), state, drafter=Drafter())
    runner.sample_tokens("masks")
    assert bool((state.logits == 1).all())


def test_the_stock_state_and_batch_have_what_is_read_here() -> None:
    from vllm.v1.worker.gpu_input_batch import InputBatch
    from vllm.v1.worker.gpu_model_runner import ExecuteModelState, GPUModelRunner

    assert {"logits", "scheduler_output"} <= set(ExecuteModelState._fields)
    assert isinstance(InputBatch.req_ids, property)
    parameters = list(inspect.signature(GPUModelRunner.sample_tokens).parameters)
    assert parameters == list(inspect.signature(SpecRunnerMixin.sample_tokens).parameters)


@pytest.mark.parametrize("method", ["standard", "block", "seeded", "synthetic"])
def test_verifier_gets_the_resolved_rule(method: str) -> None:
    rule = "token" if method == "standard" else method
    engine = make_engine(rule=rule, seeds_for="top_k")
    engine.speculative_config.rejection_sample_method = method
    engine.speculative_config.synthetic_acceptance_rates = [0.5]
    runner = Runner(
        drafter=Drafter(),
        rejection_sampler="stock",
        vllm_config=engine,
        sampler=torch.nn.Identity(),
    )
    runner.complete_spec_parts()
    assert runner.rejection_sampler.rule == ("block" if method == "block" else "token")
    assert runner.rejection_sampler.seeds_for == "top_k"
    assert (runner.rejection_sampler.synthetic is not None) == (method == "synthetic")
