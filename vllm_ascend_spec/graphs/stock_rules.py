"""Port of the rules that say what vLLM and vllm-ascend would capture; it answers in milliseconds.

``tests/upstream/test_capture_sizes.py`` compares it with their own code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vllm_ascend_spec.graphs.tiers import Tier

Rows = tuple[tuple[int, int, int], ...]

PORT = "port of the rule of vLLM 0.30.0 and vllm-ascend 0.30.0rc2"
# Most tokens of a graph; vLLM has 1024 on one family of GPUs.
CEILING = 512
# Tokens that a server schedules per step, unless it is configured otherwise or needs more.
BATCHED_TOKENS = 8192


@dataclass(frozen=True)
class CaptureInputs:
    """Settings of an engine that the rules read.

    Attributes:
        max_num_seqs: most requests that it runs at once.
        tiers: tiers in use.
        schedule: rows of the schedule of K that the tiers are from; None without a schedule.
        tensor_parallel_size: ranks of one model.
        sequence_parallel: whether sizes must be multiples of ``tensor_parallel_size``.
        max_num_batched_tokens: most tokens of one step; None for the default of a server.
        ceiling: largest of vLLM's default sizes, in tokens.
    """

    max_num_seqs: int
    tiers: tuple[Tier, ...]
    schedule: Rows | None = None
    tensor_parallel_size: int = 1
    sequence_parallel: bool = False
    max_num_batched_tokens: int | None = None
    ceiling: int = CEILING

    @property
    def query_len(self) -> int:
        """Tokens per request in the tier with the most drafts."""
        return max(tier.query_len for tier in self.tiers)

    @property
    def batched_tokens(self) -> int:
        """Most tokens of one step."""
        return self.max_num_batched_tokens or max(
            BATCHED_TOKENS, self.max_num_seqs * self.query_len
        )

    @property
    def divisor(self) -> int:
        """Divisor of all sizes."""
        return self.tensor_parallel_size if self.sequence_parallel else 1


@dataclass(frozen=True)
class Stock:
    """What vLLM or vllm-ascend captures.

    Attributes:
        sizes_by_k: sizes of the FULL decode graphs of each tier, in tokens, ascending.
        source: whose code gave the answer: a distribution and its version, or our port.
        problem: why the engine does not start or has no graphs; then there are no sizes.
        note: remark to show with the sizes.
    """

    sizes_by_k: dict[int, tuple[int, ...]]
    source: str
    problem: str = ""
    note: str = ""


TIERS_NOTE = (
    "model runner V1 has no FULL graphs with several K; these are the graphs that V2 would make"
)


def vllm(engine: CaptureInputs) -> Stock:
    """Return what vLLM captures."""
    return stock_of(engine, vllm_sizes, adjusted, PORT)


def vllm_ascend(engine: CaptureInputs) -> Stock:
    """Return what vllm-ascend captures."""
    return stock_of(engine, ascend_sizes, ascend_adjusted, PORT)


def stock_of(
    engine: CaptureInputs,
    list_sizes: Callable[[CaptureInputs], list[int]],
    adjust: Callable[[list[int], CaptureInputs], list[int]],
    source: str,
) -> Stock:
    """Return what a rule captures, or why it captures nothing.

    Args:
        engine: the engine's settings.
        list_sizes: returns the configured sizes.
        adjust: returns the sizes that model runner V1 derives from them.
        source: see :class:`Stock`.
    """
    several = len(engine.tiers) > 1
    try:
        sizes = list_sizes(engine)
        by_k = graphs_of_tiers(sizes, engine) if several else _one_tier(adjust, sizes, engine)
    except (ValueError, AssertionError) as error:
        nothing: dict[int, tuple[int, ...]] = {tier.k: () for tier in engine.tiers}
        return Stock(nothing, source, problem=" ".join(str(error).split()))
    return Stock(by_k, source, note=TIERS_NOTE if several else "")


def _one_tier(
    adjust: Callable[[list[int], CaptureInputs], list[int]], sizes: list[int], engine: CaptureInputs
) -> dict[int, tuple[int, ...]]:
    """Return the graphs of model runner V1.

    ``vllm/v1/cudagraph_dispatcher.py:CudagraphDispatcher.initialize_cudagraph_keys``.
    """
    query_len, most = engine.query_len, engine.query_len * engine.max_num_seqs
    kept = (size for size in adjust(sizes, engine) if query_len <= size <= most)
    return {engine.tiers[0].k: tuple(kept)}


def graphs_of_tiers(sizes: Sequence[int], engine: CaptureInputs) -> dict[int, tuple[int, ...]]:
    """Return the graphs that model runner V2 derives from configured sizes, by K.

    Each size is rounded up for each tier
    (``vllm/v1/worker/gpu/cudagraph_utils.py:CudaGraphManager._init_candidates``).

    Args:
        sizes: configured sizes, ascending.
        engine: the engine's settings.
    """
    largest = min(engine.query_len * engine.max_num_seqs, max(sizes, default=0))
    found = {}
    for tier in engine.tiers:
        rounded = {_round_up(size, tier.query_len) for size in sizes}
        most = min(largest, tier.query_len * engine.max_num_seqs)
        found[tier.k] = tuple(sorted(size for size in rounded if size <= most))
    return found


def vllm_sizes(engine: CaptureInputs) -> list[int]:
    """Return the defaults of ``vllm/config/vllm.py:VllmConfig._set_cudagraph_sizes``."""
    wide = engine.max_num_seqs * engine.query_len * 2
    largest = min(wide, engine.ceiling)
    decode = _decode_sizes(engine, largest) if engine.query_len > 1 else set()
    largest = min(engine.batched_tokens, largest)
    decode = {size for size in decode if size <= engine.batched_tokens}
    return _divisible(sorted({*_ladder(largest, engine.batched_tokens), *decode}), engine.divisor)


def _decode_sizes(engine: CaptureInputs, largest: int) -> set[int]:
    """Return the sizes that vLLM adds by number of requests, up to each tier's largest batch."""
    if engine.schedule is None:
        widest = {engine.query_len: engine.max_num_seqs}
    else:
        widest = {tier.query_len: tier.last for tier in engine.tiers}
    sizes = {
        requests * query_len
        for query_len, last in widest.items()
        for requests in _request_counts(min(last, engine.ceiling))
    }
    return {size for size in sizes if size <= largest}


def _request_counts(most: int) -> list[int]:
    small = [n for n in (1, 2, 4) if n <= most]
    return [*small, *range(8, min(most + 1, 256), 8), *range(256, most + 1, 16), most]


def _ladder(largest: int, batched_tokens: int) -> list[int]:
    """Return the sizes that vLLM lists by number of tokens."""
    sizes = [n for n in (1, 2, 4) if n <= largest]
    sizes += [*range(8, min(largest + 1, 256), 8), *range(256, largest + 1, 16)]
    return [*sizes, batched_tokens] if batched_tokens <= largest else sizes


def ascend_sizes(engine: CaptureInputs) -> list[int]:
    """Return the sizes after ``vllm_ascend/platform.py:_setup_compile_backend``.

    They are vLLM's list up to ``vllm_ascend/platform.py:_get_reduced_cg_cap``, and that cap.
    """
    cap = min(engine.max_num_seqs * engine.query_len, CEILING, engine.batched_tokens)
    sizes = sorted({*_ladder(cap, engine.batched_tokens), cap})
    kept = _divisible(sizes, engine.divisor)
    if not kept:
        raise AssertionError(f"no size is a multiple of {engine.divisor}, the number of ranks")
    return kept


def adjusted(sizes: list[int], engine: CaptureInputs) -> list[int]:
    """Adjust sizes for speculative decoding as vLLM does.

    ``vllm/config/compilation.py:CompilationConfig.adjust_cudagraph_sizes_for_spec_decode``.
    """
    stride = query_len = engine.query_len
    if query_len == 1:
        return sizes
    if engine.divisor > 1:
        stride = max(query_len, engine.divisor)
        if stride % query_len or stride % engine.divisor:
            raise ValueError(
                f"no sizes that are multiples of both {query_len} (K+1) and {engine.divisor} "
                "(tensor-parallel size, with sequence parallelism)"
            )
    return _rounded(sizes, stride)


def ascend_adjusted(sizes: list[int], engine: CaptureInputs) -> list[int]:
    """Adjust sizes for speculative decoding as vllm-ascend does.

    ``vllm_ascend/worker/model_runner_v1.py:NPUModelRunner._check_and_update_cudagraph_mode``.
    """
    if engine.divisor > 1:
        sizes = _rounded(sizes, math.lcm(engine.query_len, engine.divisor))
    return _rounded(sizes, engine.query_len)


def _rounded(sizes: list[int], stride: int) -> list[int]:
    """Round sizes up to multiples of ``stride``; drop those above the largest size given."""
    if stride <= 1 or not sizes:
        return sizes
    largest = sizes[-1]
    found = sorted({up for size in sizes if (up := _round_up(size, stride)) <= largest})
    if not found and stride <= largest:
        found = [stride]
    if not found:
        raise ValueError(f"no multiple of {stride} tokens is within the largest size, {largest}")
    return found


def _divisible(sizes: list[int], divisor: int) -> list[int]:
    return [size for size in sizes if size % divisor == 0]


def _round_up(size: int, stride: int) -> int:
    return -(-size // stride) * stride
