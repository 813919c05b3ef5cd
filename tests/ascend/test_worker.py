"""The NPU's runner: which parts of vllm-ascend's it takes, and which it leaves out."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import pytest


@pytest.fixture
def runner_class() -> Any:
    from vllm_ascend_spec.worker.npu import SpecNPUModelRunner

    return SpecNPUModelRunner


@pytest.mark.parametrize("speculates", [True, False])
def test_worker_builds_our_runner_and_puts_theirs_back(
    speculates: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm_ascend_spec.worker import npu

    theirs, seen, stages = npu.stock.NPUModelRunner, [], []
    monkeypatch.setattr(npu.patches, "apply", stages.append)
    monkeypatch.setattr(
        npu.stock.NPUWorker, "init_device", lambda self: seen.append(npu.stock.NPUModelRunner)
    )
    worker = object.__new__(npu.SpecNPUWorker)
    worker.vllm_config = SimpleNamespace(speculative_config={} if speculates else None)
    worker.init_device()
    assert seen == [npu.SpecNPUModelRunner if speculates else npu.PlainNPUModelRunner]
    assert npu.stock.NPUModelRunner is theirs
    assert stages == ["before_runner", "npu"]


OURS = "vllm_ascend_spec.worker.npu.SpecNPUWorker"
USUAL, OTHER = "vllm_ascend.worker.worker.NPUWorker", "vllm_ascend.xlite.xlite_worker.XliteWorker"


@pytest.mark.parametrize(
    ("speculates", "given", "chosen", "expected"),
    [
        (True, "auto", USUAL, OURS),
        (False, "auto", USUAL, OURS),
        # By an option of vllm-ascend, which speculation refuses.
        (False, "auto", OTHER, OTHER),
        (True, USUAL, OTHER, USUAL),
        (False, USUAL, OTHER, USUAL),
    ],
)
def test_our_worker_takes_the_place_of_the_usual_one(
    speculates: bool, given: str, chosen: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm_ascend_spec.platform import npu

    def choose(config: Any) -> None:
        if config.parallel_config.worker_cls == "auto":
            config.parallel_config.worker_cls = chosen

    monkeypatch.setattr(npu.NPUPlatform, "check_and_update_config", choose)
    for name in ("check_engine_config", "set_capture_sizes", "set_scheduler"):
        monkeypatch.setattr(npu, name, lambda *_, **__: None)
    config: Any = SimpleNamespace(
        speculative_config={} if speculates else None,
        parallel_config=SimpleNamespace(worker_cls=given),
    )
    npu.SpecNpuPlatform.check_and_update_config(config)
    assert config.parallel_config.worker_cls == expected


def test_drafter_is_built_where_vllm_ascend_builds_its_own(
    runner_class: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vllm-ascend would refuse a method that it does not know, a person's class for instance."""
    monkeypatch.setattr(runner_class, "create_drafter", lambda self: "ours")
    assert runner_class._get_drafter(object.__new__(runner_class)) == "ours"


class Drafter:
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def draft(self, step: Any) -> Any:
        self.step = step
        return self.answer(step)

    def take_last_draft_probs(self) -> None:
        return None


GIVEN = {
    "valid_sampled_token_ids": [[7], []],
    "sampling_metadata": "how requests are sampled",
    "scheduler_output": SimpleNamespace(num_spec_tokens_to_schedule=2),
    "spec_decode_metadata": "which rows were drafts",
    "spec_decode_common_attn_metadata": "attention",
    "positions": "positions",
    "num_scheduled_tokens": 5,
    "hidden_states": "all states",
    "aux_hidden_states": ["inner states"],
    "sample_hidden_states": "states of sampled rows",
    "target_model_batch_desc": "the graph",
}


def make_runner(runner_class: Any, drafter: Any) -> Any:
    runner = object.__new__(runner_class)
    runner.drafter, runner.num_spec_tokens = drafter, 3
    runner.input_batch = SimpleNamespace(req_ids=["a", "b"])
    return runner


def test_a_step_has_all_that_vllm_ascend_gives(runner_class: Any) -> None:
    runner = make_runner(runner_class, Drafter(lambda step: [[1, 2], []]))
    assert runner.propose_draft_token_ids(**GIVEN) == [[1, 2], []]
    step = runner.drafter.step
    assert (step.k, step.sampled_token_ids) == (2, [[7], []])
    assert (step.batch, step.sampling) == (runner.input_batch, GIVEN["sampling_metadata"])
    assert (step.hidden_states, step.sample_hidden_states) == (
        "all states",
        "states of sampled rows",
    )
    assert (step.aux_hidden_states, step.slot_mappings) == (["inner states"], None)
    assert (step.verification, step.attention) == ("which rows were drafts", "attention")


def test_drafters_that_extend_vllm_ascends_go_through_its_runner(
    runner_class: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm_ascend.worker.model_runner_v1 import NPUModelRunner

    monkeypatch.setattr(NPUModelRunner, "propose_draft_token_ids", lambda self, *given: list(given))
    runner = make_runner(runner_class, Drafter(lambda step: step.draft_by_stock()))
    assert runner.propose_draft_token_ids(**GIVEN) == list(GIVEN.values())


def test_the_signature_is_vllm_ascends(runner_class: Any) -> None:
    from vllm_ascend.worker.model_runner_v1 import NPUModelRunner

    ours, theirs = (
        inspect.signature(owner.propose_draft_token_ids).parameters
        for owner in (runner_class, NPUModelRunner)
    )
    assert list(ours) == list(theirs)


@pytest.mark.parametrize(
    "method", ["eagle", "eagle3", "mtp", "draft_model", "ngram", "custom_class"]
)
def test_every_method_has_a_drafter_on_the_npu(method: str) -> None:
    from vllm_ascend import spec_decode

    from tests.methods.engine import drafter_of

    drafter = drafter_of(method, "ascend")
    stock = {
        "eagle": spec_decode.AscendEagleProposer,
        "eagle3": spec_decode.AscendEagleProposer,
        "mtp": spec_decode.AscendEagleProposer,
        "draft_model": spec_decode.AscendDraftModelProposer,
    }
    assert issubclass(drafter, stock.get(method, object))
    for hook in ("create", "load_model", "warm_up", "dummy_run", "draft", "take_last_draft_probs"):
        assert callable(getattr(drafter, hook, None)), hook


def test_vllm_ascends_proposer_has_what_our_loop_uses() -> None:
    from vllm_ascend.spec_decode import llm_base_proposer
    from vllm_ascend.spec_decode.llm_base_proposer import AscendSpecDecodeBaseProposer

    from vllm_ascend_spec.methods.loops.ascend.stock import StockProposer

    base = AscendSpecDecodeBaseProposer
    source = "".join(
        inspect.getsource(inspect.getmodule(owner) or llm_base_proposer)
        for owner in base.__mro__
        if owner is not object
    )
    names = inspect.get_annotations(StockProposer)
    assert len(names) > 20
    missing = [
        name
        for name in names
        if not hasattr(base, name)
        and f"self.{name} =" not in source
        and f"self.{name}:" not in source
    ]
    assert missing == []
