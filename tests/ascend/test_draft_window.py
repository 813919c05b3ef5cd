"""The window of the draft's attention, where vllm-ascend has one of its own."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.ascend.environment import CPU
from tests.ascend.matrix import Case
from tests.ascend.processes import assert_same_drafts, tokens_of
from tests.engines import assert_same

BLOCK, SIZE, K = 128, 64, 3


def proposer(*, is_async: bool, texts: list[int], one_pass: bool = False) -> Any:
    """Return the part of vllm-ascend's proposer that a window reads."""
    from vllm_ascend_spec.methods.loops.window import DraftWindow

    batch = SimpleNamespace(
        num_reqs=len(texts),
        # The token sampled last included.
        num_tokens_no_spec=np.array(texts, dtype=np.int32) + 1,
        num_prompt_tokens=np.full(len(texts), 5, dtype=np.int32),
    )
    return SimpleNamespace(
        window=DraftWindow(SIZE, most_rows=K + 1, max_k=K),
        kernel_block_size=BLOCK,
        use_async_scheduling=is_async,
        parallel_drafting=one_pass,
        runner=SimpleNamespace(input_batch=batch),
        net_num_new_slots_per_request=0,
    )


def metadata(device: list[int], host: list[int]) -> Any:
    """Return metadata of K+1 rows per request, with lengths as the device and the host know."""
    optimistic = torch.tensor(host, dtype=torch.int32)
    starts = torch.arange(len(host) + 1, dtype=torch.int32) * (K + 1)
    return SimpleNamespace(
        seq_lens=torch.tensor(device, dtype=torch.int32),
        _seq_lens_cpu=optimistic,
        seq_lens_cpu=None,
        seq_lens_cpu_upper_bound=optimistic.clone(),
        query_start_loc=starts,
        query_start_loc_cpu=starts,
        block_table_tensor=torch.arange(8, dtype=torch.int32).repeat(len(host), 1),
    )


def last_block(found: Any) -> int:
    """Return which block of the text the attention of the only request ends with."""
    blocks = -(-int(found._seq_lens_cpu[0]) // BLOCK)
    return int(found.block_table_tensor[0, blocks - 1])


# Two tokens were rejected in the step before, which the host does not know yet.
DEVICE, HOST = [SIZE + 2 * BLOCK - K - 1], [SIZE + 2 * BLOCK - K + 1]


def test_vllm_ascends_own_window_misses_the_end_of_the_text() -> None:
    """When this fails, the fault is mended, and ours need not replace it."""
    from vllm_ascend.spec_decode.utils import SlidingWindowAdapter

    found = metadata(DEVICE, HOST)
    SlidingWindowAdapter(SIZE, BLOCK, 1, K, torch.device("cpu")).apply(found)
    assert last_block(found) < (HOST[0] - 1) // BLOCK


@pytest.mark.parametrize("is_async", [False, True])
def test_ours_ends_with_the_text(is_async: bool) -> None:
    from vllm_ascend_spec.methods.loops.ascend.window import AscendWindow

    found = metadata(DEVICE, HOST)
    window = AscendWindow(proposer(is_async=is_async, texts=DEVICE))
    window.apply(found)
    assert last_block(found) == (HOST[0] - 1) // BLOCK
    assert found.seq_lens.tolist()[0] - DEVICE[0] == found._seq_lens_cpu.tolist()[0] - HOST[0] < 0
    # Slots are computed from it.
    assert window.full_block_table.tolist() == [list(range(8))]


def test_rejected_tokens_are_left_out_of_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host's lengths are within the window, its counts of tokens are not."""
    import copy

    from vllm_ascend_spec.methods.loops.ascend import rejected
    from vllm_ascend_spec.methods.loops.ascend.window import AscendWindow

    monkeypatch.setattr(rejected, "get_pp_group", lambda: SimpleNamespace(world_size=1))
    text = 400
    ours, found = proposer(is_async=False, texts=[text]), metadata([text + 2], [text + 2])
    ours.sliding_window, ours.shallow_copy_metadata = AscendWindow(ours), copy.copy
    ours.sliding_window.apply(found)
    assert found._seq_lens_cpu.tolist() == [text + 2 - 2 * BLOCK]
    cut = rejected.without_rejected(ours, found, 1)
    assert cut._seq_lens_cpu.tolist() == [text - 2 * BLOCK]


def test_padding_keeps_its_lengths() -> None:
    from vllm_ascend_spec.methods.loops.ascend.window import AscendWindow

    found = metadata([400, 0], [400, 0])
    AscendWindow(proposer(is_async=False, texts=[400])).apply(found)
    assert found._seq_lens_cpu.tolist() == found.seq_lens.tolist() == [400 - 2 * BLOCK, 0]


CASES = [
    ("eagle3", "full_decode_only", {"draft_window_size": SIZE}),
    pytest.param("eagle3", "eager", {"draft_window_size": SIZE}, marks=pytest.mark.nightly),
    pytest.param(
        "eagle3", "default", {"ascend_spec": {"draft_window": SIZE}}, marks=pytest.mark.nightly
    ),
    pytest.param("draft_model", "eager", {"draft_window_size": SIZE}, marks=pytest.mark.nightly),
    pytest.param("dflash", "eager", {"draft_window_size": SIZE}, marks=pytest.mark.nightly),
    pytest.param("peagle", "eager", {"draft_window_size": SIZE}, marks=pytest.mark.nightly),
]


@pytest.mark.parametrize(("method", "mode", "additional"), CASES)
def test_drafts_within_a_window_are_those_of_a_cpu(
    method: str, mode: str, additional: dict[str, Any], run_engine: Any
) -> None:
    """Half of the prompts are so long that blocks are left out."""
    case = Case(method=method, mode=mode, engine={"additional_config": additional})
    found = run_engine(case)
    on_cpu = replace(case.for_cpu(), engine={"additional_config": additional})
    expected = run_engine(on_cpu, CPU)
    assert_same_drafts(found, expected, "greedy")
    assert_same(tokens_of(found, "greedy"), tokens_of(expected, "greedy"))
    whole = run_engine(Case(method=method, mode=mode).for_cpu(), CPU)
    assert whole["drafts_of"]["greedy"] != expected["drafts_of"]["greedy"]


@pytest.mark.nightly
def test_steps_scheduled_ahead(run_engine: Any) -> None:
    """Drafts differ, as the host does not know what was accepted; answers do not."""
    plain = run_engine(Case(method=None, mode="eager"))
    engine = {"async_scheduling": True, "additional_config": {"draft_window_size": SIZE}}
    for mode in ("eager", "full_decode_only"):
        found = run_engine(Case(method="eagle3", mode=mode, engine=engine))
        assert_same(tokens_of(found, "greedy"), tokens_of(plain, "greedy"))
        counters = found["counters_of"]["greedy"]
        drafts, accepted = (
            counters[f"vllm:spec_decode_num_{name}_tokens"] for name in ("draft", "accepted")
        )
        assert accepted > 0.2 * drafts
