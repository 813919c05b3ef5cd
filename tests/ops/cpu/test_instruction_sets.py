"""Every build of the arithmetic that this machine can run gives the reference's results."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.ops.batches import Arguments, float64, int32
from tests.ops.cases import parity_cases
from tests.ops.cpu.marks import requires_library
from tests.ops.cpu.other_process import assert_all_right, run_elsewhere
from tests.ops.sharp import sharpen
from vllm_ascend_spec.ops import cpu_library

# From the oldest machine's on.
LEVELS = ("portable", "x86_64_v3", "x86_64_v4")

pytestmark = requires_library


def levels_here() -> tuple[str, ...]:
    if cpu_library.library_problem() is not None:
        return LEVELS
    return LEVELS[: LEVELS.index(cpu_library.instruction_set()) + 1]


@pytest.fixture(scope="module")
def cases() -> list[Arguments]:
    large = parity_cases(3, seed=22, vocab_size=151936, max_requests=2, max_drafts=2)
    return [*parity_cases(250, seed=21), *map(one_among_equals, range(40)), *large]


def one_among_equals(seed: int) -> Arguments:
    """Return a case with a draft of probability 0.5 among 2,047 equal tokens.

    Adding equal numbers rounds to the same side again and again.
    """
    rest = -7.6 - 0.01 * seed
    logits = torch.full((2, 2048), rest)
    logits[:, 0] = 0.0
    case = {
        "logits": logits,
        "draft_token_ids": int32([0]),
        "cu_num_draft_tokens": int32([1]),
        "max_draft_len": 1,
        "temperature": torch.ones(1),
        "accept_uniform": float64([0.0]),
        "sample_uniform": float64([0.5]),
    }
    return sharpen(case, seed)


@pytest.mark.parametrize("level", LEVELS)
def test_level_gives_the_references_results(
    level: str, cases: list[Arguments], tmp_path: Path
) -> None:
    if level not in levels_here():
        pytest.skip(f"this machine does not have {level}, only {', '.join(levels_here())}")
    results = run_elsewhere(cases, tmp_path, VLLM_ASCEND_SPEC_CPU_ISA=level)
    assert results["instruction_set"] == level
    assert_all_right(cases, results, most_ties=0.02)


def test_best_level_is_chosen_and_none_that_is_missing(tmp_path: Path) -> None:
    best = levels_here()[-1]
    assert run_elsewhere([], tmp_path)["instruction_set"] == best
    asked = run_elsewhere([], tmp_path, VLLM_ASCEND_SPEC_CPU_ISA="x86_64_v4")
    assert asked["instruction_set"] == best
