"""``verify_seeded``: sample the target with noise of seed and position, and accept what agrees."""

from __future__ import annotations

import torch

from vllm_ascend_spec.ops.checks import check_drafts, check_sampling, check_tensor
from vllm_ascend_spec.ops.layout import fake_outputs
from vllm_ascend_spec.ops.registry import Op

OP = Op(
    name="verify_seeded",
    schema=(
        "(Tensor logits, Tensor draft_token_ids, Tensor cu_num_draft_tokens, int max_draft_len, *,"
        " Tensor temperature, Tensor? top_k=None, Tensor? top_p=None, Tensor? min_p=None,"
        " Tensor seeds, Tensor positions) -> (Tensor, Tensor)"
    ),
    backends=("cpu", "ascendc", "triton", "reference"),
)


def verify_seeded(
    logits: torch.Tensor,  # [num_rows, vocab_size]
    draft_token_ids: torch.Tensor,  # [num_drafts]
    cu_num_draft_tokens: torch.Tensor,  # [num_reqs]
    max_draft_len: int,
    *,
    temperature: torch.Tensor,  # [num_reqs]
    top_k: torch.Tensor | None = None,  # [num_reqs]
    top_p: torch.Tensor | None = None,  # [num_reqs]
    min_p: torch.Tensor | None = None,  # [num_reqs]
    seeds: torch.Tensor,  # [num_reqs]
    positions: torch.Tensor,  # [num_reqs]
    backend: str | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sample the target at each row and accept the drafts up to the first that differs.

    Let ``p`` be the target's distribution of a row, as in
    :func:`~vllm_ascend_spec.ops.verify_sample.verify_sample`, and E(seed, position, token) numbers
    from the exponential distribution of rate 1, independent of each other (``noise.py``). The
    sample of a row is the token with the least E / p, the first of equal ones. The output is the
    samples of the rows up to the first whose sample is not its draft. So it is a function of the
    target, the seed and the position alone: drafts decide only how many tokens there are.

    A draft that is the sample of the draft's distribution q with the same noise is accepted with
    probability (1 - d) / (1 + d) at least, where d is the total variation distance of p and q
    (Daliri, Musco and Suresh, 2408.07978, theorem 3); one chosen without noise, with p(x).

    Rows after the first that differs have no effect. NaN, infinite logits and rows with nothing
    above -inf are treated as in ``verify_sample``. A call without drafts samples one token each.

    Backends round, so two tokens whose log p - log E differ by no more than 4e-6 times
    1 + abs(logit) / temperature are as good, and the filters' thresholds have the tolerance of
    ``verify_sample``. Greedy requests have none.

    Args:
        logits: float32, bfloat16 or float16 [num_rows, vocab_size], rows as in
            :func:`~vllm_ascend_spec.ops.verify_greedy.verify_greedy`. Not modified.
        draft_token_ids: int32 [num_drafts]; -1 marks a draft that cannot be accepted.
        cu_num_draft_tokens: int32 [num_reqs], inclusive; a request may have no drafts.
        max_draft_len: most drafts that a request may have; sets the width of the result.
        temperature: float32 [num_reqs]; 0 verifies the request greedily.
        top_k: int32 [num_reqs]; 0 or less turns it off.
        top_p: float32 [num_reqs] in (0, 1].
        min_p: float32 [num_reqs] in [0, 1]; 0 turns it off.
        seeds: int64 [num_reqs], any.
        positions: int64 [num_reqs], of the token that the request's first row yields; each further
            row is for the position after.
        backend: name of a backend; None picks the best for the device of ``logits``.

    Returns:
        ``output_token_ids``, int32 [num_reqs, max_draft_len + 1] padded with -1, and
        ``num_output_tokens``, int32 [num_reqs], from 1 to max_draft_len + 1 each.

    Raises:
        ValueError: an argument has the wrong shape, dtype or value; the message names it.
        BackendUnavailableError: there is no backend of that name.
    """
    check_drafts(logits, draft_token_ids, cu_num_draft_tokens, max_draft_len)
    num_reqs = cu_num_draft_tokens.shape[0]
    check_sampling(num_reqs, logits.device, temperature, top_k, top_p, min_p)
    for name, tensor in (("seeds", seeds), ("positions", positions)):
        check_tensor(name, tensor, (num_reqs,), (torch.int64,), logits.device)
    return OP.backend(backend, logits.device)(
        logits,
        draft_token_ids,
        cu_num_draft_tokens,
        max_draft_len,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        seeds=seeds,
        positions=positions,
    )


OP.register(verify_seeded, fake_outputs)
