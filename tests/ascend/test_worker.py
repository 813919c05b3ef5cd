"""The NPU's runner: which parts of vllm-ascend's it takes, and which it leaves out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest


@pytest.fixture
def runner_class() -> Any:
    from vllm_ascend_spec.worker.npu import SpecNPUModelRunner

    return SpecNPUModelRunner


def test_worker_builds_our_runner_and_puts_theirs_back(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm_ascend_spec.worker import npu

    theirs, seen = npu.stock.NPUModelRunner, []
    monkeypatch.setattr(
        npu.stock.NPUWorker, "init_device", lambda self: seen.append(npu.stock.NPUModelRunner)
    )
    npu.SpecNPUWorker.init_device(object.__new__(npu.SpecNPUWorker))
    assert seen == [npu.SpecNPUModelRunner]
    assert npu.stock.NPUModelRunner is theirs


def test_what_vllm_has_built_outlives_vllm_ascends_set_up(
    runner_class: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person's class must exist once; vllm-ascend has no proposer for it and would raise."""
    from vllm_ascend.worker.model_runner_v1 import NPUModelRunner

    def set_up(self: Any) -> None:
        self.drafter = None
        self.drafter = self._get_drafter()

    monkeypatch.setattr(NPUModelRunner, "_set_up_drafter", set_up)
    runner = object.__new__(runner_class)
    runner.drafter = "a person's own"
    runner._set_up_drafter()
    assert runner.drafter == "a person's own"


def test_own_class_is_asked_for_drafts(runner_class: Any) -> None:
    from vllm_ascend_spec.proposers.custom_class.npu import SpecNpuCustomClassProposer

    class Twice:
        def propose(self, sampled: Any, counts: Any, tokens: Any, slot_mappings: Any = None) -> Any:
            return [[int(tokens[0, counts[0] - 1])] * 2]

    config: Any = SimpleNamespace(
        speculative_config=SimpleNamespace(
            model="m.Twice", num_speculative_tokens=3, num_speculative_tokens_per_batch_size=None
        ),
        model_config=SimpleNamespace(get_vocab_size=lambda: 100),
        scheduler_config=SimpleNamespace(max_num_seqs=4),
    )
    runner = object.__new__(runner_class)
    runner.drafter = SpecNpuCustomClassProposer(Twice(), config)
    runner.input_batch = SimpleNamespace(
        num_tokens_no_spec=np.array([3]), token_ids_cpu=np.array([[5, 6, 7, 0]])
    )
    assert runner.propose_draft_token_ids([[7]], "whatever", else_="is given") == [[7, 7]]
    # vllm-ascend's runner calls these of every proposer.
    assert runner.drafter.dummy_run(num_tokens=8) is None
    assert runner.drafter.load_model(None) is None


def test_other_proposers_are_asked_by_vllm_ascend(
    runner_class: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm_ascend.worker.model_runner_v1 import NPUModelRunner

    monkeypatch.setattr(NPUModelRunner, "propose_draft_token_ids", lambda self, *a, **k: (a, k))
    runner = object.__new__(runner_class)
    runner.drafter = "theirs"
    assert runner.propose_draft_token_ids([[7]], 1, two=2) == (([[7]], 1), {"two": 2})


@pytest.mark.parametrize("method", ["eagle", "draft_model", "ngram", "custom_class"])
def test_every_method_has_a_proposer_on_the_npu(method: str) -> None:
    from vllm_ascend import spec_decode

    from vllm_ascend_spec.config.methods import METHODS
    from vllm_ascend_spec.proposers.registry import proposer_class

    proposer = proposer_class(method, "npu")
    assert proposer.__module__ == METHODS[method].proposers["npu"].split(":")[0]
    stock = {
        "eagle": spec_decode.AscendEagleProposer,
        "draft_model": spec_decode.AscendDraftModelProposer,
        "ngram": spec_decode.AscendNgramProposer,
    }
    assert issubclass(proposer, stock.get(method, object))
    assert callable(proposer.create)
    assert callable(proposer.dummy_run)
