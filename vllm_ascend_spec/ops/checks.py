"""Argument checks shared by the verification ops.

Shapes and dtypes are always checked. Values are checked only where reading them is free, on the
CPU: on an accelerator it would wait for the device in every step.
"""

from __future__ import annotations

import torch

LOGITS_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def require(condition: bool, argument: str, problem: str) -> None:
    """Raise a ``ValueError`` naming ``argument`` unless ``condition`` holds."""
    if not condition:
        raise ValueError(f"{argument}: {problem}")


def check_tensor(
    name: str,
    tensor: torch.Tensor,
    shape: tuple[int, ...],
    dtypes: tuple[torch.dtype, ...],
    device: torch.device,
) -> None:
    """Check the device, shape and dtype of one argument."""
    require(tensor.device == device, name, f"on {tensor.device}, the logits are on {device}")
    require(tensor.dtype in dtypes, name, f"dtype {tensor.dtype} is not one of {dtypes}")
    require(tuple(tensor.shape) == shape, name, f"shape {tuple(tensor.shape)}, expected {shape}")


def check_drafts(
    logits: torch.Tensor,
    draft_token_ids: torch.Tensor,
    cu_num_draft_tokens: torch.Tensor,
    max_draft_len: int,
) -> None:
    """Check the arguments that both verification ops have.

    Raises:
        ValueError: naming the argument.
    """
    require(logits.ndim == 2, "logits", f"{logits.ndim} dimensions, expected 2")
    require(logits.shape[1] > 0, "logits", "the vocabulary is empty")
    require(logits.stride(1) == 1, "logits", "the vocabulary dimension must be contiguous")
    require(draft_token_ids.ndim == 1, "draft_token_ids", "expected one dimension")
    require(cu_num_draft_tokens.ndim == 1, "cu_num_draft_tokens", "expected one dimension")
    num_drafts, num_reqs = draft_token_ids.shape[0], cu_num_draft_tokens.shape[0]
    rows = (num_drafts + num_reqs, logits.shape[1])
    device = logits.device
    check_tensor("logits", logits, rows, LOGITS_DTYPES, device)
    check_tensor("draft_token_ids", draft_token_ids, (num_drafts,), (torch.int32,), device)
    check_tensor("cu_num_draft_tokens", cu_num_draft_tokens, (num_reqs,), (torch.int32,), device)
    require(max_draft_len >= 0, "max_draft_len", f"{max_draft_len} is negative")
    if logits.device.type == "cpu":
        _check_draft_values(logits.shape[1], draft_token_ids, cu_num_draft_tokens, max_draft_len)


def _check_draft_values(
    vocab_size: int,
    draft_token_ids: torch.Tensor,
    cu_num_draft_tokens: torch.Tensor,
    max_draft_len: int,
) -> None:
    # Python lists: at these sizes a dozen tensor operations cost more than the loop.
    ends = cu_num_draft_tokens.tolist()
    start = 0
    for end in ends:
        require(end >= start, "cu_num_draft_tokens", f"not monotonic: {end} follows {start}")
        require(
            end - start <= max_draft_len,
            "max_draft_len",
            f"{max_draft_len} is less than the {end - start} drafts of one request",
        )
        start = end
    num_drafts = draft_token_ids.shape[0]
    require(start == num_drafts, "cu_num_draft_tokens", f"ends at {start}, not at {num_drafts}")
    for token in draft_token_ids.tolist():
        require(
            -1 <= token < vocab_size,
            "draft_token_ids",
            f"{token} is neither -1 nor in [0, {vocab_size})",
        )
