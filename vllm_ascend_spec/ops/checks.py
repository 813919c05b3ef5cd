"""Argument checks shared by the ops.

Shapes and dtypes are always checked. Values are checked only on the CPU, where reading them is
free; on an accelerator every step would wait for the device. The checks run in every call, so a
message is built only if something is wrong.
"""

from __future__ import annotations

import math
import sys

import torch

LOGITS_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
INT32_DTYPES = (torch.int32,)
# Tokens are int32.
LARGEST_VOCAB = 2**31 - 1
# The valid values that are closest to the open ends of the arguments' ranges.
ABOVE_ZERO = math.ulp(0.0)
LARGEST = sys.float_info.max
# Up to this many values, a Python loop is faster than a tensor operation.
FEW = 32


def refusal(argument: str, problem: str) -> ValueError:
    """Return the error for an argument that cannot be used."""
    return ValueError(f"{argument}: {problem}")


def check_tensor(
    name: str,
    tensor: torch.Tensor,
    shape: tuple[int, ...],
    dtypes: tuple[torch.dtype, ...],
    device: torch.device,
) -> None:
    """Check the device, shape and dtype of one argument."""
    if tensor.device != device:
        raise refusal(name, f"on {tensor.device}, the logits are on {device}")
    if tensor.dtype not in dtypes:
        raise refusal(name, f"dtype {tensor.dtype} is not one of {dtypes}")
    if tensor.shape != shape:
        raise refusal(name, f"shape {tuple(tensor.shape)}, expected {shape}")


def check_values(
    name: str,
    values: torch.Tensor,  # [num_values]
    least: float,
    greatest: float,
    problem: str,
) -> None:
    """Check that each value lies in [least, greatest]; the message is ``{value} {problem}``."""
    if values.shape[0] > FEW:
        # NaN, if there is one, is both the minimum and the maximum.
        smallest, largest = torch.aminmax(values)
        if least <= smallest.item() and largest.item() <= greatest:
            return
    for value in values.tolist():
        if not least <= value <= greatest:
            raise refusal(name, f"{value} {problem}")


def check_logits(logits: torch.Tensor) -> None:  # [num_rows, vocab_size]
    """Check what all ops require of the logits."""
    if logits.ndim != 2:
        raise refusal("logits", f"{logits.ndim} dimensions, expected 2")
    if logits.dtype not in LOGITS_DTYPES:
        raise refusal("logits", f"dtype {logits.dtype} is not one of {LOGITS_DTYPES}")
    if not 0 < logits.shape[1] <= LARGEST_VOCAB:
        raise refusal("logits", f"a vocabulary of {logits.shape[1]}, valid: 1 to {LARGEST_VOCAB}")
    if logits.stride(1) != 1:
        raise refusal("logits", "the vocabulary dimension must be contiguous")


def check_drafts(
    logits: torch.Tensor,  # [num_rows, vocab_size]
    draft_token_ids: torch.Tensor,  # [num_drafts]
    cu_num_draft_tokens: torch.Tensor,  # [num_reqs]
    max_draft_len: int,
) -> None:
    """Check the arguments that all verification ops have.

    Raises:
        ValueError: an argument is wrong; the message names it.
    """
    check_logits(logits)
    if draft_token_ids.ndim != 1:
        raise refusal("draft_token_ids", "expected one dimension")
    if cu_num_draft_tokens.ndim != 1:
        raise refusal("cu_num_draft_tokens", "expected one dimension")
    num_drafts, num_reqs = draft_token_ids.shape[0], cu_num_draft_tokens.shape[0]
    (num_rows, vocab_size), device = logits.shape, logits.device
    if num_rows != num_drafts + num_reqs:
        expected = (num_drafts + num_reqs, vocab_size)
        raise refusal("logits", f"shape {(num_rows, vocab_size)}, expected {expected}")
    check_tensor("draft_token_ids", draft_token_ids, (num_drafts,), INT32_DTYPES, device)
    check_tensor("cu_num_draft_tokens", cu_num_draft_tokens, (num_reqs,), INT32_DTYPES, device)
    if max_draft_len < 0:
        raise refusal("max_draft_len", f"{max_draft_len} is negative")
    if device.type == "cpu":
        _check_counts(cu_num_draft_tokens, num_drafts, max_draft_len)
        problem = f"is neither -1 nor in [0, {vocab_size})"
        check_values("draft_token_ids", draft_token_ids, -1, vocab_size - 1, problem)


def check_sampling(
    num_reqs: int,
    device: torch.device,
    temperature: torch.Tensor,  # [num_reqs]
    top_k: torch.Tensor | None,  # [num_reqs]
    top_p: torch.Tensor | None,  # [num_reqs]
    min_p: torch.Tensor | None,  # [num_reqs]
) -> None:
    """Check the sampling parameters that all ops of sampled requests have.

    Raises:
        ValueError: one is wrong; the message names it.
    """
    for name, tensor, dtype in (
        ("temperature", temperature, torch.float32),
        ("top_k", top_k, torch.int32),
        ("top_p", top_p, torch.float32),
        ("min_p", min_p, torch.float32),
    ):
        if tensor is not None:
            check_tensor(name, tensor, (num_reqs,), (dtype,), device)
    if device.type != "cpu":
        return
    check_values("temperature", temperature, 0.0, LARGEST, "is not a number of 0 or more")
    if top_p is not None:
        check_values("top_p", top_p, ABOVE_ZERO, 1.0, "is not in (0, 1]")
    if min_p is not None:
        check_values("min_p", min_p, 0.0, 1.0, "is not in [0, 1]")


def _check_counts(
    cu_num_draft_tokens: torch.Tensor,  # [num_reqs]
    num_drafts: int,
    max_draft_len: int,
) -> None:
    start = 0
    for end in cu_num_draft_tokens.tolist():
        if end < start:
            raise refusal("cu_num_draft_tokens", f"not monotonic: {end} follows {start}")
        if end - start > max_draft_len:
            problem = f"{max_draft_len} is less than the {end - start} drafts of one request"
            raise refusal("max_draft_len", problem)
        start = end
    if start != num_drafts:
        raise refusal("cu_num_draft_tokens", f"ends at {start}, not at {num_drafts}")
