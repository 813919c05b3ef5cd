"""What vLLM and vllm-ascend would capture, said by their own code, where they are installed."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

from vllm_ascend_spec.graphs import stock_rules
from vllm_ascend_spec.graphs.stock_rules import CaptureInputs, Stock

OWN = "own code"


def vllm(engine: CaptureInputs) -> Stock:
    """Return what vLLM captures, by its own code."""
    with _quiet():
        return stock_rules.stock_of(engine, vllm_sizes, adjusted, OWN)


def vllm_ascend(engine: CaptureInputs) -> Stock:
    """Return what vllm-ascend captures, by its own code and by vLLM's where it calls that."""
    with _quiet():
        return stock_rules.stock_of(engine, ascend_sizes, ascend_adjusted, OWN)


def vllm_sizes(engine: CaptureInputs) -> list[int]:
    """Return vLLM's sizes where nothing is set."""
    return set_sizes(config_of(engine))


def adjusted(sizes: list[int], engine: CaptureInputs) -> list[int]:
    """Return what speculative decoding makes of sizes in vLLM."""
    if engine.query_len == 1:
        return sizes
    return _adjust(sizes, engine.query_len, engine.tensor_parallel_size, engine.sequence_parallel)


def ascend_sizes(engine: CaptureInputs) -> list[int]:
    """Return vllm-ascend's sizes where nothing is set.

    In the order of ``vllm_ascend/platform.py:NPUPlatform.apply_config_platform_defaults``, vLLM,
    and ``vllm_ascend/platform.py:_setup_compile_backend``.
    """
    from vllm_ascend.platform import _get_reduced_cg_cap

    config = config_of(replace(engine, sequence_parallel=False))
    compilation = config.compilation_config
    cap = _get_reduced_cg_cap(config)
    compilation.max_cudagraph_capture_size = cap
    set_sizes(config)
    cap = min(cap, config.scheduler_config.max_num_batched_tokens)
    compilation.cudagraph_capture_sizes = sorted({*compilation.cudagraph_capture_sizes, cap})
    compilation.max_cudagraph_capture_size = None
    sizes = set_sizes(config)
    if engine.divisor > 1:
        sizes = config.update_sizes_for_sequence_parallelism(sizes)
        if not sizes:
            raise AssertionError(f"no size is a multiple of {engine.divisor}, the number of ranks")
    return sizes


def ascend_adjusted(sizes: list[int], engine: CaptureInputs) -> list[int]:
    """Return what speculative decoding makes of sizes in vllm-ascend.

    As ``vllm_ascend/worker/model_runner_v1.py:NPUModelRunner._check_and_update_cudagraph_mode``
    calls vLLM.
    """
    if engine.divisor > 1:
        sizes = _adjust(sizes, math.lcm(engine.query_len, engine.divisor), 1, False)
    return _adjust(sizes, engine.query_len, 1, False) if engine.query_len > 1 else sizes


def config_of(engine: CaptureInputs) -> Any:
    """Return the part of vLLM's configuration that its rule reads."""
    from vllm.config import CompilationConfig, VllmConfig

    compilation = CompilationConfig()
    compilation.pass_config.enable_sp = engine.sequence_parallel
    drafts = engine.query_len - 1
    speculative = SimpleNamespace(
        num_speculative_tokens=drafts,
        num_speculative_tokens_per_batch_size=[list(row) for row in engine.schedule or ()],
        uses_dynamic_speculative_decoding=lambda: engine.schedule is not None,
    )
    config = SimpleNamespace(
        model_config=SimpleNamespace(enforce_eager=False),
        compilation_config=compilation,
        scheduler_config=SimpleNamespace(
            max_num_seqs=engine.max_num_seqs, max_num_batched_tokens=engine.batched_tokens
        ),
        parallel_config=SimpleNamespace(tensor_parallel_size=engine.tensor_parallel_size),
        speculative_config=speculative if drafts else None,
        num_speculative_tokens=drafts,
        uniform_decode_query_len=engine.query_len,
        performance_mode="balanced",
    )
    config.update_sizes_for_sequence_parallelism = partial(
        VllmConfig.update_sizes_for_sequence_parallelism, config
    )
    return config


def set_sizes(config: Any) -> list[int]:
    """Return the sizes that vLLM sets in a configuration of :func:`config_of`."""
    from vllm.config import VllmConfig

    VllmConfig._set_cudagraph_sizes(config)
    return list(config.compilation_config.cudagraph_capture_sizes)


def _adjust(sizes: list[int], stride: int, ranks: int, sequence_parallel: bool) -> list[int]:
    from vllm.config import CompilationConfig

    compilation = CompilationConfig()
    compilation.pass_config.enable_sp = sequence_parallel
    compilation.cudagraph_capture_sizes = list(sizes)
    compilation.max_cudagraph_capture_size = max(sizes, default=0)
    compilation.adjust_cudagraph_sizes_for_spec_decode(stride, ranks)
    return list(compilation.cudagraph_capture_sizes)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep vLLM's warnings about the sizes it leaves out off the terminal."""
    log = logging.getLogger("vllm")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)
