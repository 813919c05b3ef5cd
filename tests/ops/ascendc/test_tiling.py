"""How a batch is cut for the cores, and what the host refuses."""

from __future__ import annotations

import ctypes
import itertools
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ops.emulator.build import build, requires_compiler

pytestmark = requires_compiler
QWEN = 151_936
AUTO, SPLIT, BY_REQUEST = 0, 1, 2
TOP_K, TOP_P, DRAFT_PROBS = 4, 8, 32


class _Result(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in ("cores", "tile", "by_request", "workspace")),
        ("problem", ctypes.c_char * 256),
    )


@cache
def library() -> ctypes.CDLL:
    return ctypes.CDLL(str(build(Path(__file__).parent / "plan_host.cpp")))


@dataclass(frozen=True)
class Plan:
    cores: int
    tile: int
    by_request: bool
    workspace: int
    problem: str

    def tiles(self, vocab: int) -> int:
        return -(-vocab // self.tile)


def plan(
    num_reqs: int,
    drafts: int,
    vocab: int = QWEN,
    *,
    cores: int = 48,
    tile: int = 0,
    mode: int = AUTO,
    flags: int = 0,
) -> Plan:
    """Plan a batch of ``num_reqs`` requests with ``drafts`` drafts each."""
    result = _Result()
    numbers = (num_reqs, num_reqs * (drafts + 1), vocab, drafts, flags, cores, tile, mode)
    arguments = (ctypes.c_int64(number) for number in numbers)
    library().plan_verify_sample(*arguments, ctypes.byref(result))
    return Plan(
        result.cores,
        result.tile,
        bool(result.by_request),
        result.workspace,
        result.problem.decode(),
    )


def split(function: str, *numbers: int) -> int:
    call = getattr(library(), function)
    call.restype = ctypes.c_int64
    return int(call(*(ctypes.c_int64(number) for number in numbers)))


def test_one_request_is_cut_for_all_cores() -> None:
    found = plan(1, 4)
    assert (found.cores, found.by_request, found.problem) == (48, False, "")
    assert 5 * found.tiles(QWEN) >= 2 * 48


@pytest.mark.parametrize("num_reqs", [8, 32])
def test_large_batches_have_long_tiles(num_reqs: int) -> None:
    assert plan(num_reqs, 4).tile == 8192


def test_tiles_of_small_vocabularies_stay_long_enough_to_copy() -> None:
    found = plan(1, 1, vocab=5000)
    assert (found.tile, found.cores) == (2048, 2 * 3)


def test_vocabularies_of_many_tiles_get_longer_ones() -> None:
    assert plan(1, 0, vocab=400_000, cores=64).tile == 4096
    assert plan(1, 0, vocab=1_000_000, cores=64).tile == 8192


@pytest.mark.parametrize(
    ("num_reqs", "by_request"),
    [(1, False), (35, False), (36, True), (48, True), (49, False), (71, False), (72, True)],
)
def test_requests_stay_whole_where_that_keeps_the_cores_busy(
    num_reqs: int, by_request: bool
) -> None:
    found = plan(num_reqs, 4)
    assert found.by_request is by_request
    assert found.cores == min(48, num_reqs if by_request else 48)


def test_tests_may_choose() -> None:
    found = plan(2, 1, vocab=640, cores=8, tile=64, mode=SPLIT)
    assert (found.tile, found.cores, found.by_request) == (64, 8, False)
    assert plan(2, 1, mode=BY_REQUEST).by_request


def test_workspace_grows_with_what_the_call_needs() -> None:
    plain, draft_probs, top_p, top_k = (
        plan(8, 4, flags=flags).workspace for flags in (0, DRAFT_PROBS, TOP_P, TOP_P | TOP_K)
    )
    assert plain < draft_probs < top_p < top_k
    # A record a tile; the least that can be.
    assert plain == 40 * 19 * 32


def test_whole_requests_exchange_no_lists() -> None:
    assert plan(48, 4, flags=TOP_P).workspace < 2**20 < plan(49, 4, flags=TOP_P).workspace


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ({"drafts": 128}, ("max_draft_len: 128", "127", 'backend="reference"')),
        ({"vocab": 2**20 + 1}, ("vocab_size: 1048577", "1048576", 'backend="reference"')),
        ({"cores": 0}, ("num_cores: 0", "[1, 64]")),
        ({"cores": 65}, ("num_cores: 65", "[1, 64]")),
        ({"tile": 100}, ("tile: 100", "multiple of 64", "8192")),
        ({"tile": 16384}, ("tile: 16384", "8192")),
        ({"tile": 64}, ("vocab_size: 151936", "8192")),
    ],
)
def test_what_does_not_fit_is_refused_with_a_remedy(
    arguments: dict[str, int], shown: tuple[str, ...]
) -> None:
    problem = plan(**{"num_reqs": 1, "drafts": 4, **arguments}).problem
    for text in shown:
        assert text in problem


def test_the_largest_that_fit_are_taken() -> None:
    assert plan(1, 127).problem == ""
    assert plan(1, 0, vocab=2**20).problem == ""


@given(rows=st.integers(1, 300), tiles=st.integers(1, 128), cores=st.integers(1, 64))
def test_every_tile_has_one_core(rows: int, tiles: int, cores: int) -> None:
    firsts = [split("split_first", rows, tiles, cores, core) for core in range(cores + 1)]
    assert firsts[0] == 0
    assert firsts[-1] == rows * tiles
    parts = [end - start for start, end in itertools.pairwise(firsts)]
    assert max(parts) - min(parts) <= 1
    for core, (start, end) in enumerate(itertools.pairwise(firsts)):
        for tile in {start, end - 1} if end > start else ():
            assert split("split_core_of", rows, tiles, cores, tile) == core
