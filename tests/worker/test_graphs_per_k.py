"""Graphs of whole decode batches for several K, over vLLM's own dispatcher."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from vllm.config import CompilationConfig, CUDAGraphMode
from vllm.forward_context import BatchDescriptor
from vllm.v1.cudagraph_dispatcher import CudagraphDispatcher

from vllm_ascend_spec.config.capture import set_sizes_by_k
from vllm_ascend_spec.worker.graphs_per_k import GraphsPerKMixin, PerKDispatcher

WIDEST = 8
# By the rows of each request: no drafts, one, three. Twelve tokens are in two of them.
SIZES = {1: (1, 4, 8), 2: (2, 12), 4: (4, 12, 32)}
PIECEWISE = BatchDescriptor(num_tokens=12, num_reqs=None, uniform=False)


def config(mode: CUDAGraphMode, sizes: list[int] | None = None) -> Any:
    """Return vLLM's configuration of an engine with K=3, as far as its dispatcher reads it."""
    compilation = CompilationConfig(
        cudagraph_mode=mode,
        cudagraph_capture_sizes=sizes or sorted({n for row in SIZES.values() for n in row}),
    )
    compilation.max_cudagraph_capture_size = compilation.cudagraph_capture_sizes[-1]
    compilation.is_attention_compiled_piecewise = lambda: True
    return SimpleNamespace(
        compilation_config=compilation,
        num_speculative_tokens=3,
        lora_config=None,
        scheduler_config=SimpleNamespace(max_num_seqs=WIDEST),
    )


def dispatcher(mode: CUDAGraphMode = CUDAGraphMode.FULL_AND_PIECEWISE) -> PerKDispatcher:
    """Return one whose sizes have been rounded to the most drafts meanwhile, as vLLM does it."""
    vllm_config = config(mode)
    found = PerKDispatcher(vllm_config, SIZES)
    vllm_config.compilation_config.adjust_cudagraph_sizes_for_spec_decode(4, 1)
    found.initialize_cudagraph_keys(mode, 4)
    return found


def whole(size: int, rows: int) -> BatchDescriptor:
    """Return the graph of a whole decode batch."""
    return BatchDescriptor(num_tokens=size, num_reqs=size // rows, uniform=True)


@pytest.mark.parametrize(
    ("rows", "requests", "size"),
    [(1, 1, 1), (1, 3, 4), (1, 8, 8), (2, 1, 2), (2, 2, 12), (2, 6, 12), (4, 3, 12), (4, 4, 32)],
)
def test_each_length_has_its_own_graphs(rows: int, requests: int, size: int) -> None:
    found = dispatcher()
    found.uniform_decode_query_len = rows
    wanted = CUDAGraphMode.FULL, whole(size, rows)
    assert found.dispatch(rows * requests, uniform_decode=True) == wanted


def test_a_batch_wider_than_the_graphs_of_its_length_has_graphs_of_pieces() -> None:
    found = dispatcher()
    found.uniform_decode_query_len = 2
    mode, descriptor = found.dispatch(14, uniform_decode=True)
    assert (mode, descriptor.num_tokens, descriptor.uniform) == (CUDAGraphMode.PIECEWISE, 32, False)


def test_without_graphs_of_pieces_it_has_none() -> None:
    found = dispatcher(CUDAGraphMode.FULL_DECODE_ONLY)
    found.uniform_decode_query_len = 2
    assert found.dispatch(14, uniform_decode=True)[0] == CUDAGraphMode.NONE


def test_what_is_captured_is_what_was_planned() -> None:
    found = dispatcher(CUDAGraphMode.FULL_DECODE_ONLY)
    ((mode, descriptors),) = found.get_capture_descs()
    assert mode == CUDAGraphMode.FULL
    assert set(descriptors) == {whole(n, rows) for rows, row in SIZES.items() for n in row}
    # vLLM's own, rounded and for one length.
    stock_config = config(CUDAGraphMode.FULL_DECODE_ONLY)
    stock_config.compilation_config.adjust_cudagraph_sizes_for_spec_decode(4, 1)
    stock = CudagraphDispatcher(stock_config)
    stock.initialize_cudagraph_keys(CUDAGraphMode.FULL_DECODE_ONLY, 4)
    assert {d.num_tokens for _, row in stock.get_capture_descs() for d in row} == {4, 8, 12, 32}


def test_other_batches_are_padded_to_any_size() -> None:
    found = dispatcher()
    assert found.dispatch(9) == (CUDAGraphMode.PIECEWISE, PIECEWISE)


class Stock:
    """A runner's part of it: says what it was called with."""

    def __init__(self, sizes: dict[int, tuple[int, ...]]) -> None:
        self.vllm_config = config(CUDAGraphMode.FULL_DECODE_ONLY)
        self.compilation_config = self.vllm_config.compilation_config
        set_sizes_by_k(self.compilation_config, sizes)
        self.uniform_decode_query_len = 4
        self.cudagraph_dispatcher = CudagraphDispatcher(self.vllm_config)
        self.captured: list[tuple[BatchDescriptor, int, int]] = []

    def _determine_batch_execution_and_padding(self, **kwargs: Any) -> tuple[int, int]:
        return self.uniform_decode_query_len, self.cudagraph_dispatcher.uniform_decode_query_len

    def _warmup_and_capture(self, desc: BatchDescriptor, mode: CUDAGraphMode) -> None:
        rows = self._determine_batch_execution_and_padding(
            max_num_scheduled_tokens=99, force_uniform_decode=desc.uniform
        )
        self.captured.append((desc, *rows))


class Runner(GraphsPerKMixin, Stock):
    """With our part."""

    def __init__(self, sizes: dict[int, tuple[int, ...]]) -> None:
        super().__init__(sizes)
        self.take_up_tiers()


def rows_of(runner: Runner, longest: int) -> tuple[int, int]:
    """Return the rows of each request that the runner and the dispatcher go by in a step."""
    return runner._determine_batch_execution_and_padding(max_num_scheduled_tokens=longest)


def test_a_step_has_the_rows_of_its_requests() -> None:
    runner = Runner({rows - 1: row for rows, row in SIZES.items()})
    # Prompts have as many rows as they have, and no graph is for three.
    assert [rows_of(runner, n) for n in (1, 4, 2, 77, 3)] == [(1,) * 2, (4,) * 2, (2,) * 2] + [
        (2,) * 2
    ] * 2


def test_a_graph_is_captured_with_the_rows_that_it_is_for() -> None:
    runner = Runner({rows - 1: row for rows, row in SIZES.items()})
    for desc in (whole(12, 2), whole(12, 4), PIECEWISE):
        runner._warmup_and_capture(desc, CUDAGraphMode.FULL)
    assert [rows for _, *rows in runner.captured] == [[2, 2], [4, 4], [4, 4]]
    assert runner.uniform_decode_query_len == 4


def test_nothing_changes_where_k_is_fixed() -> None:
    runner = Runner({})
    assert type(runner.cudagraph_dispatcher) is CudagraphDispatcher
    assert [rows_of(runner, n) for n in (1, 4, 2)] == [(4, 4)] * 3
