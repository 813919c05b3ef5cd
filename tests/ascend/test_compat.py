"""Mends of vllm-ascend, each with the stock fault that it mends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch

from tests.compat.conftest import TakeOut, is_applied, take_out  # noqa: F401 - a fixture
from tests.compat.test_thinking_budget_state import leave_and_move, reasoning
from vllm_ascend_spec.compat import (
    npu_additional_config,
    npu_draft_model_graph,
    npu_draft_model_lengths,
    npu_draft_model_padding,
    npu_generator_rewind,
    npu_logprobs_mode,
    registry,
    thinking_budget_state,
)


@pytest.fixture
def proposer_class() -> Any:
    from vllm_ascend.spec_decode.draft_proposer import AscendDraftModelProposer

    return AscendDraftModelProposer


def test_stage_applies_every_mend_once() -> None:
    from importlib import import_module

    mends = [import_module(f"vllm_ascend_spec.compat.{name}") for name in registry.STAGES["npu"]]
    registry.apply("npu")
    once = [mend._patches._undo[:] for mend in mends]
    registry.apply("npu")
    assert all(map(is_applied, mends))
    assert [mend._patches._undo for mend in mends] == once
    for mend in reversed(mends):
        mend.revert()


def test_draft_model_is_wrapped_in_a_full_graph(
    take_out: TakeOut,  # noqa: F811
    proposer_class: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from vllm_ascend.spec_decode import llm_base_proposer

    wrapped: list[Any] = []
    monkeypatch.setattr(
        llm_base_proposer, "ACLGraphWrapper", lambda runnable, *_, **__: wrapped.append(runnable)
    )
    mode = SimpleNamespace(has_full_cudagraphs=lambda: True)
    proposer = SimpleNamespace(
        method="draft_model",
        vllm_config=SimpleNamespace(
            compilation_config=SimpleNamespace(cudagraph_mode=mode), model_config=None
        ),
        use_cuda_graph=True,
        use_eagle=False,
        enable_enpu=False,
        _run_merged_draft="all draft steps",
    )
    take_out(npu_draft_model_graph)
    proposer_class._maybe_share_lm_head(proposer, None)
    assert wrapped == []
    npu_draft_model_graph.apply()
    proposer_class._maybe_share_lm_head(proposer, None)
    assert wrapped == ["all draft steps"]


class Buffer:
    """A buffer on host and device; this one is on the host only."""

    def __init__(self, *values: int) -> None:
        self.np = np.array(values, dtype=np.int32)

    def copy_to_gpu(self) -> None:
        return None


def test_requests_of_padding_share_the_tokens_that_are_left(
    take_out: TakeOut,  # noqa: F811
    proposer_class: Any,
) -> None:
    """K=3: two requests of five tokens in a graph for three of four."""
    from vllm_ascend.worker.model_runner_v1 import NPUModelRunner

    drafter = proposer_class.__new__(proposer_class)
    mode = SimpleNamespace()
    runner: Any = SimpleNamespace(
        drafter=drafter,
        uniform_decode_query_len=4,
        arange_np=np.arange(8),
        compilation_config=SimpleNamespace(cudagraph_mode=mode),
    )

    def pad() -> list[int]:
        drafter.query_start_loc = Buffer(0, 5, 10, 0, 0)
        padded = NPUModelRunner._pad_query_start_loc_for_fia(
            runner, drafter.query_start_loc, 12, 3, 2, mode, 3
        )
        assert padded == 3
        return drafter.query_start_loc.np.tolist()

    take_out(npu_draft_model_padding)
    assert pad()[3] == 14
    npu_draft_model_padding.apply()
    assert pad()[:4] == [0, 5, 10, 12]
    # The target's own padding is right as it is.
    target = Buffer(0, 4, 8, 0, 0)
    NPUModelRunner._pad_query_start_loc_for_fia(runner, target, 12, 3, 2, mode, 3)
    assert target.np.tolist()[:4] == [0, 4, 8, 12]


@pytest.mark.parametrize(
    ("reals", "padded", "tokens", "expected"),
    [(1, 4, 16, [5, 8, 12, 16]), (3, 4, 16, [5, 10, 15, 16]), (2, 5, 20, [5, 10, 13, 16, 20])],
)
def test_shares_are_even(reals: int, padded: int, tokens: int, expected: list[int]) -> None:
    starts = np.zeros(8, dtype=np.int32)
    starts[: reals + 1] = 5 * np.arange(reals + 1)
    npu_draft_model_padding.share_tokens(starts, reals, padded, tokens)
    assert starts[1 : padded + 1].tolist() == expected


def test_first_pass_gets_the_block_table_of_the_batch(
    take_out: TakeOut,  # noqa: F811
    proposer_class: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from vllm_ascend.spec_decode.llm_base_proposer import AscendSpecDecodeBaseProposer

    seen: list[int] = []
    take_out(npu_draft_model_padding)
    monkeypatch.setattr(
        AscendSpecDecodeBaseProposer,
        "set_inputs_first_pass",
        lambda self, *, cad: seen.append(cad.block_table_tensor.shape[0]),
    )
    metadata = SimpleNamespace(num_reqs=6, block_table_tensor=torch.zeros(8, 2))
    proposer_class.set_inputs_first_pass(None, cad=metadata)
    npu_draft_model_padding.apply()
    proposer_class.set_inputs_first_pass(None, cad=metadata)
    npu_draft_model_padding.revert()
    assert seen == [8, 6]
    # The runner's own metadata stays as it is.
    assert metadata.block_table_tensor.shape[0] == 8


def test_lengths_in_a_full_graph_count_the_sampled_token(
    take_out: TakeOut,  # noqa: F811
    proposer_class: Any,
) -> None:
    runner = SimpleNamespace(
        seq_lens=torch.tensor([7, 9, 0, 0]), optimistic_seq_lens_cpu=torch.tensor([7, 9, 0, 0])
    )
    proposer = SimpleNamespace(runner=runner, net_num_new_slots_per_request=1)
    other = torch.tensor([7, 9])

    def fit(tensor: torch.Tensor) -> list[int]:
        return proposer_class._adjust_tensor(proposer, tensor, 3).tolist()

    take_out(npu_draft_model_lengths)
    assert fit(runner.seq_lens) == [7, 9, 0]
    npu_draft_model_lengths.apply()
    assert fit(runner.seq_lens) == fit(runner.optimistic_seq_lens_cpu) == [8, 10, 0]
    assert fit(other) == [7, 9, 0]
    assert runner.seq_lens.tolist() == [7, 9, 0, 0]


class PastTheRewindError(Exception):
    """The stock bookkeeping got past the lines that rewind."""


class Batch:
    """The part of vllm-ascend's batch that sampling and rewinding look at."""

    sampling_metadata = None

    def __init__(self, generators: dict[int, torch.Generator]) -> None:
        self.generators = generators

    def update_async_output_token_ids(self) -> None:
        return None

    @property
    def req_ids(self) -> list[str]:
        raise PastTheRewindError


def test_generator_of_an_unfinished_prompt_is_left_as_it_was(
    take_out: TakeOut,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from vllm_ascend.worker import model_runner_v1
    from vllm_ascend.worker.model_runner_v1 import NPUModelRunner

    monkeypatch.setattr(model_runner_v1, "lmhead_tp_enable", lambda: False)
    offsets: list[int] = []

    class Generator(torch.Generator):
        def get_offset(self) -> int:
            return 100

        def set_offset(self, offset: int) -> None:
            offsets.append(offset)

    def draws(mended: bool) -> list[float]:
        generators = {index: Generator().manual_seed(index) for index in (0, 2)}
        batch = Batch(generators)
        runner: Any = SimpleNamespace(
            input_batch=batch,
            num_discarded_requests=1,
            discard_request_indices=SimpleNamespace(np=np.array([2, 0, 0])),
            use_async_scheduling=False,
            sampler=lambda **_: [torch.rand(1, generator=g) for g in generators.values()],
        )
        NPUModelRunner._sample(runner, None, None)
        with pytest.raises(PastTheRewindError):
            NPUModelRunner._bookkeeping_sync(runner, None, None, None, None, 0, None)
        assert sorted(batch.generators) == [0, 2]
        assert offsets == ([] if mended else [96])
        offsets.clear()
        return [torch.rand(1, generator=g).item() for g in generators.values()]

    take_out(npu_generator_rewind)
    stock = draws(mended=False)
    npu_generator_rewind.apply()
    mended = draws(mended=True)
    fresh = torch.rand(1, generator=torch.Generator().manual_seed(2)).item()
    assert mended[0] == stock[0]
    assert mended[1] == fresh != stock[1]


def test_sampler_gets_the_models_logprobs_mode(
    take_out: TakeOut,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import vllm.config
    from vllm_ascend.worker import model_runner_v1

    config = SimpleNamespace(model_config=SimpleNamespace(logprobs_mode="processed_logprobs"))
    monkeypatch.setattr(vllm.config, "get_current_vllm_config", lambda: config)
    take_out(npu_logprobs_mode)
    assert model_runner_v1.AscendSampler().logprobs_mode == "raw_logprobs"
    npu_logprobs_mode.apply()
    sampler = model_runner_v1.AscendSampler()
    assert sampler.logprobs_mode == "processed_logprobs"
    assert sampler.topk_topp_sampler.logprobs_mode == "processed_logprobs"


def test_thinking_budgets_of_vllm_ascends_batch_are_mended(
    take_out: TakeOut,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It builds vLLM's holder of budgets, which the mend of the stage before the runner is for."""
    from vllm_ascend.worker import npu_input_batch

    # It asks for process groups, and has nothing to do with budgets.
    monkeypatch.setattr(npu_input_batch, "MultiGroupBlockTable", MagicMock())

    def make_batch() -> Any:
        return npu_input_batch.NPUInputBatch(
            max_num_reqs=4,
            max_model_len=32,
            max_num_batched_tokens=32,
            device=torch.device("cpu"),
            pin_memory=False,
            vocab_size=16,
            block_sizes=[16],
            kernel_block_sizes=[[16]],
            reasoning_config=reasoning(),
        )

    take_out(thinking_budget_state)
    assert leave_and_move(make_batch()) == {"free": 3}
    thinking_budget_state.apply()
    assert leave_and_move(make_batch()) == {}


def refused_keys(**options: Any) -> set[str]:
    """Return the options that vllm-ascend's config class refuses."""
    from pydantic import ValidationError
    from vllm_ascend import ascend_config

    with pytest.raises(ValidationError) as raised:  # it misses others in any case
        ascend_config.AscendConfig(**options)
    return {
        error["loc"][0]
        for error in raised.value.errors()
        if error["type"] == "unexpected_keyword_argument"
    }


def test_our_section_is_not_vllm_ascends(take_out: TakeOut) -> None:  # noqa: F811
    options = {"ascend_spec": {"verify_rule": "block"}, "ascend_specs": {}}
    take_out(npu_additional_config)
    assert refused_keys(**options) == {"ascend_spec", "ascend_specs"}
    npu_additional_config.apply()
    for _ in range(2):  # the first time pydantic completes the class
        assert refused_keys(**options) == {"ascend_specs"}
