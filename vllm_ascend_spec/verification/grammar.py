"""Structured output: apply the scheduler's bitmask to the rows that need it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from vllm_ascend_spec.ops import grammar_mask
from vllm_ascend_spec.ops.send import send


def mask_logits(
    logits: torch.Tensor,  # [num_rows, vocab_size]
    scheduler_output: Any,
    grammar_output: Any,
    req_ids: list[str],
    backend: str | None,
) -> None:
    """Mask the tokens that a request's grammar forbids, in place.

    This replaces vLLM's own function (vllm/v1/structured_output/utils.py:apply_grammar_bitmask),
    which builds a mask for every row of the batch and, for 16-bit logits on a CPU, copies all of
    them twice.

    Args:
        logits: the target's logits.
        scheduler_output: says how many drafts each request has.
        grammar_output: ``grammar_bitmask``, int32 [num_masked, num_words] on the host, and the
            requests it is for; each has a mask per draft and one more.
        req_ids: requests of the batch, in the order of their rows.
        backend: backend of the op; None for the best one.
    """
    drafts = scheduler_output.scheduled_spec_decode_tokens
    first_row: dict[str, int] = {}
    row = 0
    for req_id in req_ids:
        first_row[req_id] = row
        row += 1 + len(drafts.get(req_id, ()))
    rows: list[int] = []
    for req_id in grammar_output.structured_output_request_ids:
        first, count = first_row.get(req_id), 1 + len(drafts.get(req_id, ()))
        # A request may have left the batch since its masks were made.
        rows.extend([-1] * count if first is None else range(first, first + count))
    # Copied, because an array that came through a socket may be read-only.
    bitmask = torch.from_numpy(np.array(grammar_output.grammar_bitmask[: len(rows)], order="C"))
    indices = torch.tensor(rows, dtype=torch.int32)
    on_device = [send(tensor, logits.device) for tensor in (bitmask, indices)]
    grammar_mask(logits, *on_device, backend=backend)
