"""Random batches for the verification ops. Hypothesis picks shapes, a seed picks the numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import strategies as st

from vllm_ascend_spec.ops.registry import PREFERENCE, Op
from vllm_ascend_spec.ops.verify_greedy import OP as GREEDY
from vllm_ascend_spec.ops.verify_sample import OP as SAMPLE

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
RULES = ("token", "block")


def backends_on_cpu(op: Op, *, without: tuple[str, ...] = ()) -> list[Any]:
    """Return a pytest parameter for each backend for the CPU; one that cannot run is skipped."""
    names = [name for name in PREFERENCE["cpu"] if name in op.backends and name not in without]
    status = op.status("cpu")
    return [
        pytest.param(name, marks=pytest.mark.skipif(status[name] != "ready", reason=status[name]))
        for name in names
    ]


GREEDY_BACKENDS = backends_on_cpu(GREEDY)
SAMPLE_BACKENDS = backends_on_cpu(SAMPLE)

lengths = st.lists(st.integers(0, 4), min_size=1, max_size=6)
vocab_sizes = st.integers(1, 9)
seeds = st.integers(0, 2**32 - 1)
dtypes = st.sampled_from(DTYPES)

Arguments = dict[str, Any]


def int32(values: list[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def float64(values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def make_drafts(
    draft_lens: list[int],
    vocab_size: int,
    seed: int,
    *,
    dtype: torch.dtype = torch.float32,
    broken: bool = True,
) -> Arguments:
    """Build what both ops take: coarse logits with many ties, and drafts that are often right.

    Args:
        draft_lens: drafts of each request.
        vocab_size: size of the vocabulary.
        seed: of all numbers.
        dtype: of the logits.
        broken: whether some logits are NaN, -inf or +inf, and some rows nothing else.
    """
    generator = torch.Generator().manual_seed(seed)
    num_drafts, num_rows = sum(draft_lens), sum(draft_lens) + len(draft_lens)
    logits = (torch.randn(num_rows, vocab_size, generator=generator) * 4).round() / 2
    if broken:
        fate = torch.rand(num_rows, vocab_size, generator=generator)
        logits[fate < 0.1] = float("nan")
        logits[fate > 0.9] = float("-inf")
        logits[(fate > 0.5) & (fate < 0.53)] = float("inf")
        dead = torch.rand(num_rows, generator=generator)
        logits[dead < 0.05] = float("-inf")
        logits[dead > 0.95] = float("nan")
    request = torch.repeat_interleave(torch.tensor(draft_lens))
    own_row = torch.arange(num_drafts) + request
    best = logits.masked_fill(logits.isnan(), float("-inf"))[own_row].argmax(dim=-1)
    other = torch.randint(-1, vocab_size, (num_drafts,), generator=generator)
    right = torch.rand(num_drafts, generator=generator) < 0.6
    return {
        "logits": logits.to(dtype),
        "draft_token_ids": torch.where(right, best, other).int(),
        "cu_num_draft_tokens": torch.tensor(draft_lens).cumsum(0).int(),
        "max_draft_len": max(draft_lens),
    }


def make_sampled(
    draft_lens: list[int],
    vocab_size: int,
    seed: int,
    *,
    dtype: torch.dtype = torch.float32,
    broken: bool = True,
    filters: tuple[str, ...] = ("top_k", "top_p", "min_p"),
    with_draft_probs: bool = False,
) -> Arguments:
    """Build the arguments of ``verify_sample``: greedy and sampled requests side by side."""
    arguments = make_drafts(draft_lens, vocab_size, seed, dtype=dtype, broken=broken)
    generator = torch.Generator().manual_seed(seed + 1)
    num_reqs, num_drafts = len(draft_lens), sum(draft_lens)

    def rand(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    greedy = rand(num_reqs) < 0.3
    arguments["temperature"] = (rand(num_reqs) * 2 + 0.1).masked_fill(greedy, 0.0).float()
    builders: dict[str, Callable[[], torch.Tensor]] = {
        "top_k": lambda: torch.randint(-1, vocab_size + 2, (num_reqs,), generator=generator).int(),
        "top_p": lambda: (1 - rand(num_reqs)).clamp(max=1.0).float(),
        "min_p": lambda: rand(num_reqs).float(),
    }
    for name in filters:
        arguments[name] = builders[name]()
    if with_draft_probs:
        arguments["draft_probs"] = (rand(num_drafts, vocab_size) * 3).softmax(-1).float()
    arguments["accept_uniform"] = rand(num_drafts)
    arguments["sample_uniform"] = rand(num_reqs)
    return arguments


def as_lists(result: tuple[torch.Tensor, torch.Tensor]) -> tuple[list[list[int]], list[int]]:
    """Turn an op's result into lists, checking dtypes on the way."""
    tokens, counts = result
    assert tokens.dtype == counts.dtype == torch.int32
    return tokens.tolist(), counts.tolist()


def with_wide_stride(logits: torch.Tensor) -> torch.Tensor:
    """Return the same values in a wider buffer, full of what must not be read."""
    buffer = logits.new_full((logits.shape[0], logits.shape[1] + 3), 1e4)
    buffer[:, : logits.shape[1]] = logits
    view = buffer[:, : logits.shape[1]]
    assert view.stride(0) > view.shape[1]
    return view


def spoil_unread_rows(arguments: Arguments, num_output: torch.Tensor, value: float) -> torch.Tensor:
    """Return the logits with every row after each request's last output token overwritten."""
    logits = arguments["logits"].clone()
    start = 0
    for index, end in enumerate(arguments["cu_num_draft_tokens"].tolist()):
        first = start + index + int(num_output[index])
        logits[first : end + index + 1] = value
        start = end
    return logits
