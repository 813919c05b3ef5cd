"""Batches of the sizes that models have, whose launches are lowered and linted."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import torch

from tests.ops.batches import DTYPES
from tests.ops.parity import Arguments
from tests.ops.seeded import NOT_TAKEN
from tests.ops.triton_ascend.backend import (
    Recorder,
    grammar_mask,
    verify_greedy,
    verify_sample,
    verify_seeded,
    verify_tree,
)
from tests.ops.triton_ascend.lowering import Variant
from vllm_ascend_spec.ops.verify_sample import RULES

VOCAB = 151936
NONE, ALL = (), ("top_k", "top_p", "min_p")


def batch(
    dtype: torch.dtype,
    *,
    vocab_size: int = VOCAB,
    num_drafts: int = 4,
    filters: tuple[str, ...] = (),
    with_draft_probs: bool = False,
    rule: str = "token",
) -> Arguments:
    """Return arguments of ``verify_sample``, with nothing of meaning in them."""
    arguments = {
        "logits": torch.empty(num_drafts + 1, vocab_size, dtype=dtype),
        "draft_token_ids": torch.zeros(num_drafts, dtype=torch.int32),
        "cu_num_draft_tokens": torch.tensor([num_drafts], dtype=torch.int32),
        "max_draft_len": num_drafts,
        "temperature": torch.ones(1),
        "accept_uniform": torch.zeros(num_drafts, dtype=torch.float64),
        "sample_uniform": torch.zeros(1, dtype=torch.float64),
        "rule": rule,
    }
    for name in filters:
        arguments[name] = torch.ones(1, dtype=torch.int32 if name == "top_k" else torch.float32)
    if with_draft_probs:
        arguments["draft_probs"] = torch.empty(num_drafts, vocab_size)
    return arguments


def sampled() -> Iterator[Arguments]:
    """Yield batches that between them launch every variant of interest."""
    for probs, rule, filters in itertools.product((False, True), RULES, (NONE, ALL)):
        yield batch(torch.bfloat16, filters=filters, with_draft_probs=probs, rule=rule)
    yield batch(torch.float16, filters=ALL, with_draft_probs=True, rule="block")
    # By day all filters at once have what each has alone; float32 is below, and float16 above.
    if "TESTS_COMPILE_ALL" in os.environ:
        for name in ALL:
            yield batch(torch.bfloat16, filters=(name,))
        yield batch(torch.float16, with_draft_probs=True, rule="block")
        for filters in (NONE, ALL):
            yield batch(torch.float32, filters=filters, with_draft_probs=True, rule="block")
    for num_drafts, vocab_size in ((1, 32000), (15, VOCAB), (4, 300)):
        sizes = {"num_drafts": num_drafts, "vocab_size": vocab_size}
        yield batch(torch.float32, filters=ALL, with_draft_probs=True, rule="block", **sizes)
        yield batch(torch.float32, **sizes)


def seeded(arguments: Arguments) -> Arguments:
    """Return arguments of ``verify_seeded`` for a batch of ``verify_sample``."""
    taken = {name: value for name, value in arguments.items() if name not in NOT_TAKEN}
    zeros = torch.zeros(arguments["cu_num_draft_tokens"].shape[0], dtype=torch.int64)
    return {**taken, "seeds": zeros, "positions": zeros}


def tree(arguments: Arguments) -> Arguments:
    """Return arguments of ``verify_tree`` for a batch of ``verify_sample``."""
    return {**seeded(arguments), "parents": torch.full_like(arguments["draft_token_ids"], -1)}


def launched_variants() -> list[Variant]:
    """Return every variant that the batches of all ops launch."""
    recorder = Recorder()
    for arguments in sampled():
        verify_sample(arguments, recorder)
        verify_greedy(arguments, recorder)
        verify_seeded(seeded(arguments), recorder)
    for filters in (NONE, ALL):
        verify_tree(tree(batch(torch.bfloat16, num_drafts=15, filters=filters)), recorder)
    for dtype in DTYPES:
        arguments = batch(dtype)
        verify_greedy(arguments, recorder)
        words = torch.zeros(1, -(-VOCAB // 32), dtype=torch.int32)
        grammar_mask(arguments["logits"], words, torch.zeros(1, dtype=torch.int32), recorder)
    return list(recorder.variants)
