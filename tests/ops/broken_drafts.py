"""Distributions of drafts that are none: cases, and what holds for them whatever they hold."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import strategies as st

from tests.ops.batches import RULES, Arguments, lengths, seeds, vocab_sizes
from tests.ops.cases import BROKEN, parity_cases
from tests.ops.parity import Result

# Any float32, and often those that are easily taken wrong.
ENTRIES = st.floats(width=32) | st.sampled_from(BROKEN).map(lambda x: float(torch.tensor(x)))


@st.composite
def with_any_draft_probs(draw: Any) -> Arguments:
    """Draw a case of a few requests in which ``draft_probs`` holds any float32 at all."""
    counts, vocab, seed = draw(lengths), draw(vocab_sizes), draw(seeds)
    (case,) = parity_cases(
        1, seed, vocab_size=vocab, drafts="near", rule=draw(st.sampled_from(RULES)),
        max_requests=len(counts), max_drafts=max(counts),
    )  # fmt: skip
    probs = case["draft_probs"].contiguous()
    size = probs.numel()
    entries = draw(st.lists(ENTRIES, min_size=size, max_size=size))
    return {**case, "draft_probs": torch.tensor(entries).reshape(probs.shape)}


def vanishing_product() -> Arguments:
    """Return a case of the block rule whose product is below every float32, and then 1 again.

    The last draft is one that its own distribution says is impossible.
    """
    return {
        "logits": torch.full((5, 2), 20.0),
        "cu_num_draft_tokens": torch.tensor([4], dtype=torch.int32),
        "draft_token_ids": torch.tensor([1, 0, 1, 1], dtype=torch.int32),
        "max_draft_len": 4,
        "temperature": torch.tensor([0.05]),
        "rule": "block",
        "draft_probs": torch.tensor([[0.0, 0.0], [3e38, 0.0], [0.0, 1.2e6], [0.0, 0.0]]),
        "accept_uniform": torch.tensor([0.5, 0.3, 0.8, 0.5], dtype=torch.float64),
        "sample_uniform": torch.tensor([0.8], dtype=torch.float64),
    }


def assert_in_range(case: Arguments, result: Result) -> None:
    """Assert what must hold without knowing q: drafts, then one token of the vocabulary."""
    tokens, counts = result
    ends = [0, *case["cu_num_draft_tokens"].tolist()]
    drafts = case["draft_token_ids"].tolist()
    for index, (output, count) in enumerate(zip(tokens.tolist(), counts.tolist(), strict=True)):
        own = drafts[ends[index] : ends[index + 1]]
        assert 1 <= count <= len(own) + 1
        assert output[: count - 1] == own[: count - 1]
        assert -1 not in output[:count]
        assert 0 <= output[count - 1] < case["logits"].shape[1]
        assert output[count:] == [-1] * (len(output) - count)
