"""Patches for layers that keep a state, each beside vllm-ascend's fault.

test_state_engines.py runs engines without them.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.ascend.environment import IS_SIMULATED
from tests.patches.cases import TakeOut
from vllm_ascend_spec.patches import (
    npu_accepted_counts,
    npu_accepted_states,
    npu_partial_rotary,
    npu_state_table,
)

K, HEADS, SIZE = 3, 2, 128


@pytest.fixture(autouse=True)
def _as_found(take_out: TakeOut) -> None:
    """Take them out, and leave each as it was."""
    from vllm.platforms import current_platform

    # The platform applies one of them when it is asked for.
    current_platform.import_kernels()
    for patch in (npu_accepted_counts, npu_accepted_states, npu_state_table, npu_partial_rotary):
        take_out(patch)


def test_rotary_tables_are_as_wide_as_what_is_rotated(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm_ascend.ops import rotary_embedding
    from vllm_ascend.platform import NPUPlatform

    monkeypatch.setattr(
        NPUPlatform, "check_and_update_config", classmethod(lambda cls, vllm_config: None)
    )

    def table_width() -> int:
        for name in ("_cos", "_sin", "_cos_mla", "_sin_mla"):
            monkeypatch.setattr(rotary_embedding, name, None)
        monkeypatch.setattr(rotary_embedding, "is_vl_model", lambda _: False)
        monkeypatch.setattr(rotary_embedding, "has_rope", lambda _: True)
        text = SimpleNamespace(rope_parameters={"partial_rotary_factor": 0.25})
        model = SimpleNamespace(use_mla=False, get_head_size=lambda: 64, hf_text_config=text)
        scheduler = SimpleNamespace(max_num_batched_tokens=8)
        config: Any = SimpleNamespace(model_config=model, scheduler_config=scheduler)
        NPUPlatform.check_and_update_config(config)
        rotary_embedding.set_cos_and_sin(config, 8, 1, torch.float32, "cpu")
        return int(rotary_embedding._cos.shape[-1])

    assert table_width() == 64
    npu_partial_rotary.apply()
    assert table_width() == 16


def test_a_model_without_text_configuration_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm_ascend.platform import NPUPlatform

    monkeypatch.setattr(
        NPUPlatform, "check_and_update_config", classmethod(lambda cls, vllm_config: None)
    )
    npu_partial_rotary.apply()
    config: Any = SimpleNamespace(model_config=None)
    NPUPlatform.check_and_update_config(config)


@pytest.mark.parametrize("lengths", [[2, 4, 1], [4, 4, 4], [0, 3, 2], [1, 1, 1]])
def test_each_row_has_a_state_of_its_request(lengths: list[int]) -> None:
    table = torch.arange(12).view(3, K + 1)
    rows = npu_state_table.states_of_rows(table, torch.tensor(lengths), sum(lengths))
    expected = [state for row, n in zip(table.tolist(), lengths, strict=True) for state in row[:n]]
    assert rows.tolist() == expected


def test_rows_of_padding_have_some_state() -> None:
    table = torch.arange(8).view(2, K + 1)
    rows = npu_state_table.states_of_rows(table, torch.tensor([2, 0]), 4)
    assert rows[:2].tolist() == [0, 1]
    assert set(rows[2:].tolist()) <= set(table.flatten().tolist())


@pytest.mark.skipif(not IS_SIMULATED, reason="the kernel of CANN takes bfloat16 alone")
def test_a_request_with_fewer_drafts_leaves_the_others_states_alone() -> None:
    """vllm-ascend's call, with one draft for the first request and K for the second."""
    from vllm_ascend.ops import gdn

    lengths, table = [2, K + 1], torch.arange(1, 9, dtype=torch.int32).view(2, K + 1)
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(sum(lengths), HEADS, SIZE, generator=generator)

    def states_after(requests: list[int]) -> torch.Tensor:
        state = torch.arange(9.0)[:, None, None, None].expand(9, HEADS, SIZE, SIZE).clone().npu()
        first = 0 if 0 in requests else lengths[0]
        given = rows[first : first + sum(lengths[r] for r in requests)].npu()
        gdn.recurrent_gated_delta_rule(
            given,
            given,
            given,
            state,
            g=torch.zeros(len(given), HEADS).npu(),
            beta=torch.full((len(given), HEADS), 0.5).npu(),
            scale=1.0,
            actual_seq_lengths=torch.tensor(
                [0, *(lengths[r] for r in requests)], dtype=torch.int32
            ).npu(),
            ssm_state_indices=table[requests].flatten().npu(),
            num_accepted_tokens=torch.ones(len(requests), dtype=torch.int32).npu(),
        )
        return state.cpu()

    with pytest.raises(RuntimeError, match="ssm_state_indices has shape"):
        states_after([0, 1])
    npu_state_table.apply()
    both = states_after([0, 1])
    for request in (0, 1):
        own = table[request, : lengths[request]].long()
        assert torch.equal(both[own], states_after([request])[own])
    assert both[[0, 3, 4]].unique().tolist() == [0, 3, 4]


def step(**drafts: int) -> Any:
    """Return a step with that many drafts of each request; -1 for one that does not run."""
    runs = {name: n for name, n in drafts.items() if n >= 0}
    return SimpleNamespace(
        scheduled_spec_decode_tokens={name: [0] * n for name, n in runs.items() if n},
        num_scheduled_tokens={name: n + 1 for name, n in runs.items()},
        finished_req_ids=set(),
        preempted_req_ids=None,
        scheduled_cached_reqs=SimpleNamespace(resumed_req_ids=set()),
    )


class Runner:
    """What of vllm-ascend's runner the patch reads: three requests, a layer, counts."""

    def __init__(self, accepted: list[int]) -> None:
        self.input_batch = SimpleNamespace(
            req_ids=["a", "b", "c"], num_accepted_tokens_cpu=torch.tensor(accepted).numpy()
        )
        self.requests = {
            name: SimpleNamespace(block_ids=([0], list(range(1 + 4 * i, 5 + 4 * i))))
            for i, name in enumerate("abc")
        }
        self.cache_config = SimpleNamespace(mamba_cache_mode="none")
        self.num_spec_tokens = K
        self.use_async_scheduling = False
        self.num_accepted_tokens = SimpleNamespace(np=None)
        self.num_accepted_tokens_event = SimpleNamespace(synchronize=lambda: None)
        self.device = "npu"
        blocks = torch.arange(13.0).npu()
        inputs = blocks[:, None, None] * 10 + torch.arange(6.0).npu()[:, None]
        self.caches = [
            (1, inputs.expand(13, 6, 8).contiguous(), True),
            (1, blocks[:, None, None].expand(13, 4, 4).contiguous(), False),
        ]

    def firsts(self) -> list[list[float]]:
        """Return what is in each request's first block: the first inputs, and the state."""
        (_, inputs, _), (_, states, _) = self.caches
        return [[*inputs[block, :3, 0].tolist(), states[block, 0, 0].item()] for block in (1, 5, 9)]


@pytest.fixture
def _caches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(npu_accepted_states, "caches_of", lambda runner: runner.caches)


@pytest.mark.usefixtures("_caches")
@pytest.mark.parametrize(
    ("begins", "moved"),
    [
        # All have K drafts, and nothing moves, whatever was accepted.
        ({"a": 3, "b": 3, "c": 3}, ()),
        # None, or left out.
        ({"a": 3, "b": 0, "c": 3}, ("b",)),
        ({"a": 3, "b": -1, "c": 3}, ("b",)),
        # Fewer rows than tokens that were accepted, and as many.
        ({"a": 3, "b": 1, "c": 3}, ("b",)),
        ({"a": 3, "b": 2, "c": 3}, ()),
        ({"a": 0, "b": 0, "c": 0}, ("b", "c")),
    ],
)
def test_states_are_moved_before_a_step_that_would_not_find_them(
    begins: dict[str, int], moved: tuple[str, ...]
) -> None:
    """One token of "a" was accepted, three of "b" and four of "c"."""
    runner = Runner([1, 3, 4])
    npu_accepted_states.commit_states(runner, step(**begins))
    expected = [[10, 11, 12, 1], [50, 51, 52, 5], [90, 91, 92, 9]]
    if "b" in moved:
        expected[1] = [52, 53, 54, 7]
    if "c" in moved:
        expected[2] = [93, 94, 95, 12]
    assert runner.firsts() == expected
    counts = [1, 1 if "b" in moved else 3, 1 if "c" in moved else 4]
    assert runner.input_batch.num_accepted_tokens_cpu.tolist() == counts
    assert hasattr(runner, "has_moved_states") == bool(moved)


@pytest.mark.usefixtures("_caches")
def test_states_of_requests_that_ended_are_not_moved() -> None:
    runner, begins = Runner([4, 4, 4]), step(a=-1, b=-1, c=-1)
    begins.finished_req_ids = {"a"}
    begins.preempted_req_ids = {"b"}
    begins.scheduled_cached_reqs.resumed_req_ids = {"c"}
    npu_accepted_states.commit_states(runner, begins)
    assert runner.input_batch.num_accepted_tokens_cpu.tolist() == [4, 4, 4]


def test_the_host_waits_for_counts_before_the_batch_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from vllm_ascend.worker.model_runner_v1 import NPUModelRunner

    order: list[str] = []
    monkeypatch.setattr(NPUModelRunner, "_update_states", lambda *_: order.append("changes"))
    event = SimpleNamespace(synchronize=lambda: order.append("waits"))
    runner: Any = SimpleNamespace(num_accepted_tokens_event=event, use_async_scheduling=False)
    NPUModelRunner._update_states(runner, None)
    assert order == ["changes"]
    npu_accepted_counts.apply()
    order.clear()
    NPUModelRunner._update_states(runner, None)
    assert order == ["waits", "changes"]
