"""``verify_greedy``: accept drafts that are the target's argmax."""

from __future__ import annotations

import torch

from vllm_ascend_spec.ops.checks import check_drafts
from vllm_ascend_spec.ops.layout import fake_outputs
from vllm_ascend_spec.ops.registry import Op

OP = Op(
    name="verify_greedy",
    schema=(
        "(Tensor logits, Tensor draft_token_ids, Tensor cu_num_draft_tokens, int max_draft_len)"
        " -> (Tensor, Tensor)"
    ),
    backends=("cpu", "triton", "ascendc", "reference"),
)


def verify_greedy(
    logits: torch.Tensor,  # [num_rows, vocab_size]
    draft_token_ids: torch.Tensor,  # [num_drafts]
    cu_num_draft_tokens: torch.Tensor,  # [num_reqs]
    max_draft_len: int,
    *,
    backend: str | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Verify drafts of greedy requests.

    The longest prefix of a request's drafts that equals the target's argmax is accepted. The next
    row's argmax follows it: it corrects the first wrong draft, or is the bonus token. Ties go to
    the lowest index. A NaN counts as -inf; a row with nothing above -inf yields token 0. Rows after
    the first rejection have no effect.

    Args:
        logits: float32, bfloat16 or float16 [num_rows, vocab_size], num_rows = num_drafts +
            num_reqs. A request's rows are consecutive: one per draft, then its bonus row. The
            row stride may exceed vocab_size. Not modified.
        draft_token_ids: int32 [num_drafts]; -1 marks a draft that cannot be accepted.
        cu_num_draft_tokens: int32 [num_reqs], inclusive cumulative number of drafts; a request
            may have none.
        max_draft_len: most drafts that a request may have; sets the width of the result.
        backend: name of a backend; None picks the best for the device of ``logits``.

    Returns:
        ``output_token_ids``, int32 [num_reqs, max_draft_len + 1] padded with -1, and
        ``num_output_tokens``, int32 [num_reqs], from 1 to max_draft_len + 1 each.

    Raises:
        ValueError: an argument has the wrong shape, dtype or value; the message names it.
        BackendUnavailableError: there is no backend of that name.
    """
    check_drafts(logits, draft_token_ids, cu_num_draft_tokens, max_draft_len)
    run = OP.backend(backend, logits.device)
    return run(logits, draft_token_ids, cu_num_draft_tokens, max_draft_len)


OP.register(verify_greedy, fake_outputs)
