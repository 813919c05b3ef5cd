"""Large vocabularies: right results, and what the cores read and wait for, as counted."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from ops.emulator.library import Emulator
from tests.ops.ascendc.kernels import bytes_by_core, bytes_read, make_emulator
from tests.ops.batches import DTYPES, Arguments
from tests.ops.cases import parity_cases
from tests.ops.emulator.build import requires_compiler
from tests.ops.parity import assert_right, judge, judge_greedy
from vllm_ascend_spec.ops import grammar_mask, verify_greedy, verify_sample
from vllm_ascend_spec.ops.ascendc_library import use

pytestmark = requires_compiler
QWEN, LLAMA = 151_936, 32_001
CORES, DRAFTS = 48, 4


@cache
def batch(num_reqs: int, vocab: int = QWEN, dtype: torch.dtype = torch.float32) -> Arguments:
    """Make logits with a model's few likely tokens, and drafts that are often the most likely."""
    generator = torch.Generator().manual_seed(num_reqs)
    num_rows, num_drafts = num_reqs * (DRAFTS + 1), num_reqs * DRAFTS
    logits = torch.randn(num_rows, vocab, generator=generator) * 2.5
    likely = torch.randint(0, vocab, (num_rows, 30), generator=generator)
    logits.scatter_add_(1, likely, torch.linspace(6, 16, 30).expand(num_rows, -1))
    logits = logits.to(dtype)
    own_rows = torch.arange(num_drafts) + torch.arange(num_drafts) // DRAFTS
    drafts = logits[own_rows].argmax(-1)
    drafts[torch.rand(num_drafts, generator=generator) < 0.2] = 7
    return {
        "logits": logits,
        "draft_token_ids": drafts.int(),
        "cu_num_draft_tokens": (torch.arange(1, num_reqs + 1) * DRAFTS).int(),
        "max_draft_len": DRAFTS,
    }


def sampled(num_reqs: int, **filters: float) -> Arguments:
    generator = torch.Generator().manual_seed(num_reqs + 100)
    kinds = {"top_k": torch.int32, "top_p": torch.float32, "min_p": torch.float32}
    return {
        **batch(num_reqs),
        "temperature": torch.full((num_reqs,), 0.8),
        "accept_uniform": torch.rand(num_reqs * DRAFTS, generator=generator).double(),
        "sample_uniform": torch.rand(num_reqs, generator=generator).double(),
        **{name: torch.full((num_reqs,), v, dtype=kinds[name]) for name, v in filters.items()},
    }


def run(arguments: Arguments, emulator: Emulator) -> float:
    """Run and judge; return the bytes read, relative to the logits'."""
    logits = arguments["logits"]
    with use(emulator):
        if "temperature" in arguments:
            result = verify_sample(**arguments, backend="ascendc")
            assert_right([judge(arguments, result)], most_ties=1)
        else:
            result = verify_greedy(**arguments, backend="ascendc")
            assert_right([judge_greedy(arguments, result)], most_ties=0)
    return bytes_read(emulator) / (logits.numel() * logits.element_size())


@pytest.mark.parametrize("vocab", [QWEN, LLAMA])
@pytest.mark.parametrize("nan_mode", [0, 1])
def test_cases_of_large_vocabularies_equal_the_reference(vocab: int, nan_mode: int) -> None:
    verdicts = []
    cases = parity_cases(6, 20 + nan_mode, vocab_size=vocab, max_requests=3, max_drafts=3)
    for index, case in enumerate(cases):
        emulator = make_emulator(num_cores=(CORES, 5)[index % 2], nan_mode=nan_mode)
        with use(emulator):
            verdicts.append(judge(case, verify_sample(**case, backend="ascendc")))
    assert_right(verdicts, most_ties=1)


@pytest.mark.parametrize("vocab", [QWEN, LLAMA])
def test_a_batch_of_one_keeps_the_cores_busy(vocab: int) -> None:
    emulator = make_emulator(num_cores=CORES)
    run(batch(1, vocab), emulator)
    row = vocab * 4
    busy = [core for core in bytes_by_core(emulator) if core > row / 40]
    assert len(busy) >= 40


@pytest.mark.parametrize("num_reqs", [1, 8])
@pytest.mark.parametrize("dtype", DTYPES)
def test_greedy_reads_the_logits_once_and_meets_once(num_reqs: int, dtype: torch.dtype) -> None:
    emulator = make_emulator(num_cores=CORES)
    assert run(batch(num_reqs, QWEN, dtype), emulator) == pytest.approx(1, abs=0.01)
    assert emulator.stats.sync_alls == 1


@pytest.mark.parametrize("num_reqs", [1, 8])
def test_sampling_without_filters_reads_the_logits_once(num_reqs: int) -> None:
    emulator = make_emulator(num_cores=CORES)
    # And the tile of each request's last token.
    assert run(sampled(num_reqs), emulator) == pytest.approx(1, abs=0.02)
    assert emulator.stats.sync_alls == 1


@pytest.mark.parametrize(
    ("filters", "most"),
    [
        ({"top_p": 0.9}, 2.3),
        ({"top_k": 50}, 2.3),
        ({"top_k": 50, "top_p": 0.9}, 2.3),
        ({"min_p": 0.05}, 2.3),
    ],
)
@pytest.mark.parametrize("num_reqs", [1, 8])
def test_usual_filters_take_one_more_pass(
    num_reqs: int, filters: dict[str, float], most: float
) -> None:
    emulator = make_emulator(num_cores=CORES)
    assert run(sampled(num_reqs, **filters), emulator) < most
    # The scan; a pass, and the empty one that ends the search; jobs, and masses.
    assert emulator.stats.sync_alls == 1 + 2 + 2


def test_whole_requests_stop_at_the_first_rejection_and_never_meet() -> None:
    arguments = batch(8)
    emulator = make_emulator(num_cores=8)
    with use(emulator):
        _, counts = verify_greedy(**arguments, backend="ascendc")
    rows = int(counts.sum())
    assert rows < arguments["logits"].shape[0]
    assert bytes_read(emulator) == pytest.approx(rows * QWEN * 4, rel=0.01)
    assert emulator.stats.sync_alls == 0
    sampled_emulator = make_emulator(num_cores=8)
    assert run(sampled(8), sampled_emulator) < 1
    assert sampled_emulator.stats.sync_alls == 0


def test_flat_rows_need_more_passes_and_are_right() -> None:
    arguments = sampled(1, top_k=50_000, top_p=0.99)
    arguments["logits"] = torch.randn(5, QWEN, generator=torch.Generator().manual_seed(3))
    emulator = make_emulator(num_cores=CORES)
    run(arguments, emulator)
    assert 5 < emulator.stats.sync_alls < 20


def test_mask_reads_only_its_rows() -> None:
    logits = batch(8)["logits"].clone()
    bitmask = torch.zeros(3, QWEN // 32, dtype=torch.int32)
    emulator = make_emulator(num_cores=CORES)
    with use(emulator):
        rows = torch.tensor([5, -1, 39], dtype=torch.int32)
        grammar_mask(logits, bitmask, rows, backend="ascendc")
    assert bytes_read(emulator) == pytest.approx(2 * QWEN * (4 + 1 / 8), rel=0.01)
    assert emulator.stats.gm_write_bytes[3] == 2 * QWEN * 4
    assert len([core for core in bytes_by_core(emulator) if core > 0]) >= 2 * CORES // 3 - 1
    assert bool((logits[[5, 39]] == float("-inf")).all())


def test_the_unified_buffer_has_room_for_select() -> None:
    emulator = make_emulator(num_cores=2)
    for arguments in (batch(1), sampled(1, top_p=0.9)):
        run(arguments, emulator)
        assert max(emulator.stats.peak_ub) <= 184 * 1024
