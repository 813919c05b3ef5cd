"""``grammar_mask``: forbid the tokens that a grammar does not allow next."""

from __future__ import annotations

import torch

from vllm_ascend_spec.ops.checks import (
    INT32_DTYPES,
    check_logits,
    check_tensor,
    check_values,
    refusal,
)
from vllm_ascend_spec.ops.registry import Op

# Tokens in one word of a bitmask.
WORD = 32

OP = Op(
    name="grammar_mask",
    schema="(Tensor(a!) logits, Tensor bitmask, Tensor row_indices) -> ()",
    backends=("cpu", "triton", "ascendc", "reference"),
)


def grammar_mask(
    logits: torch.Tensor,  # [num_rows, vocab_size]
    bitmask: torch.Tensor,  # [num_masked, num_words]
    row_indices: torch.Tensor,  # [num_masked]
    *,
    backend: str | None = None,
) -> None:
    """Set the logits of forbidden tokens to -inf, in place, in the rows that have a grammar.

    The bitmask is that of xgrammar and vLLM (vllm/v1/structured_output/utils.py:
    apply_grammar_bitmask): token ``t`` of a row is allowed if bit ``t % 32`` of word ``t // 32`` is
    set. Other rows are neither read nor written.

    Args:
        logits: float32, bfloat16 or float16 [num_rows, vocab_size]; modified. The row stride may
            exceed vocab_size; memory between the rows is left alone.
        bitmask: int32 [num_masked, num_words], contiguous; num_words is at least vocab_size / 32,
            rounded up; bits past the vocabulary are ignored.
        row_indices: int32 [num_masked], the row that each mask applies to, without duplicates; -1
            skips a mask, so that a captured graph can hold more masks than a step needs.
        backend: name of a backend; None picks the best for the device of ``logits``.

    Raises:
        ValueError: an argument has the wrong shape, dtype or value; the message names it.
        BackendUnavailableError: there is no backend of that name.
    """
    check_logits(logits)
    (num_rows, vocab_size), device = logits.shape, logits.device
    if num_rows > 1 and logits.stride(0) < vocab_size:
        raise refusal("logits", "the rows overlap, so that a mask of one would change others")
    if bitmask.ndim != 2:
        raise refusal("bitmask", f"{bitmask.ndim} dimensions, expected 2")
    if not bitmask.is_contiguous():
        raise refusal("bitmask", "must be contiguous")
    num_masked, num_words = bitmask.shape
    if num_words * WORD < vocab_size:
        problem = f"{num_words} words are too few for a vocabulary of {vocab_size}"
        raise refusal("bitmask", problem)
    check_tensor("bitmask", bitmask, (num_masked, num_words), INT32_DTYPES, device)
    check_tensor("row_indices", row_indices, (num_masked,), INT32_DTYPES, device)
    if device.type == "cpu":
        _check_rows(row_indices, num_rows)
    OP.backend(backend, device)(logits, bitmask, row_indices)


def _check_rows(row_indices: torch.Tensor, num_rows: int) -> None:  # [num_masked]
    problem = f"is neither -1 nor in [0, {num_rows})"
    check_values("row_indices", row_indices, -1, num_rows - 1, problem)
    masked = [row for row in row_indices.tolist() if row >= 0]
    if len(set(masked)) != len(masked):
        raise refusal("row_indices", f"a row is named twice in {masked}")


def _fake(
    logits: torch.Tensor,  # [num_rows, vocab_size]
    bitmask: torch.Tensor,  # [num_masked, num_words]
    row_indices: torch.Tensor,  # [num_masked]
) -> None:
    """Do nothing: the op has no result."""


OP.register(grammar_mask, _fake)
