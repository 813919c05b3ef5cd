"""``verify_sample``: accept drafts so that the output has the target's distribution."""

from __future__ import annotations

import math

import torch

from vllm_ascend_spec.ops.checks import (
    check_drafts,
    check_sampling,
    check_tensor,
    check_values,
    refusal,
)
from vllm_ascend_spec.ops.layout import fake_outputs
from vllm_ascend_spec.ops.registry import Op

RULES = ("token", "block")
# The largest uniform.
BELOW_ONE = math.nextafter(1.0, 0.0)

OP = Op(
    name="verify_sample",
    schema=(
        "(Tensor logits, Tensor draft_token_ids, Tensor cu_num_draft_tokens, int max_draft_len, *,"
        " Tensor temperature, Tensor? top_k=None, Tensor? top_p=None, Tensor? min_p=None,"
        " Tensor? draft_probs=None, Tensor accept_uniform, Tensor sample_uniform,"
        ' str rule="token") -> (Tensor, Tensor)'
    ),
    backends=("cpu", "triton", "ascendc", "reference"),
)


def verify_sample(
    logits: torch.Tensor,  # [num_rows, vocab_size]
    draft_token_ids: torch.Tensor,  # [num_drafts]
    cu_num_draft_tokens: torch.Tensor,  # [num_reqs]
    max_draft_len: int,
    *,
    temperature: torch.Tensor,  # [num_reqs]
    top_k: torch.Tensor | None = None,  # [num_reqs]
    top_p: torch.Tensor | None = None,  # [num_reqs]
    min_p: torch.Tensor | None = None,  # [num_reqs]
    draft_probs: torch.Tensor | None = None,  # [num_drafts, vocab_size]
    accept_uniform: torch.Tensor,  # [num_drafts]
    sample_uniform: torch.Tensor,  # [num_reqs]
    rule: str = "token",
    backend: str | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Verify drafts of sampled and greedy requests, losslessly.

    Let ``p`` be the target's distribution of a row after temperature, min-p, top-k and top-p (in
    vLLM's order) and ``q`` the draft's distribution. The token rule (Leviathan et al., 2211.17192;
    Chen et al., 2302.01318) accepts draft x if u < p(x) / q(x). The first rejected draft is
    replaced by a sample of max(p - q, 0), normalised; if all drafts are accepted, the bonus token
    is a sample of p. Tokens are sampled by inverting the cumulative distribution in vocabulary
    order. All randomness comes in as arguments, so every backend gives the same tokens.

    The block rule (Sun et al., 2403.10444) judges the drafts x_1 ... x_n together and accepts at
    least as many on average. Let w_0 = 1 and w_i = min(w_{i-1} p(x_i) / q(x_i), 1), and let R_i be
    the sum of max(w_i p - q, 0) in row i. The rule accepts the first i drafts for the largest i
    with u_i < h_i, where h_n = w_n and, for i < n, h_i = R_i / (R_i + 1 - w_i). After i < n
    accepted drafts the next token is a sample of max(w_i p - q, 0), normalised. With one-hot drafts
    the rule accepts exactly as many on average as the token rule.

    A NaN logit counts as -inf; a row with nothing above -inf yields token 0; tokens at +inf share
    all of the mass. min-p keeps tokens with p(x) >= min_p · max p; top-k keeps all tokens tied
    with the k-th; top-p keeps a token if the total mass of strictly more likely tokens is below
    top_p. Rows that the decision does not need have no effect: with the token rule, and for greedy
    requests, the rows after the first rejection.

    Backends sum in different orders, so they may decide differently where a number is within
    rounding error of a threshold. A result is right if the reference gives it for uniforms, top-p
    and min-p that differ by no more than 2e-6; ``tests/ops/parity.py`` applies this criterion and
    counts such ties. A draw from max(w p - q, 0) happens only with probability r, the sum of that
    residual, and a decision by h_i only with probability r = R_i + 1 - w_i. Their tolerance is
    2e-6 / r, so that the distribution of the output changes as little. Greedy requests and top-k
    have no tolerance.

    A draft of -1 is rejected and replaced by a sample of p; it ends the block. The same goes for a
    draft x whose own q(x) is NaN, because its true probability is unknown. NaN elsewhere in the row
    counts as 0, as does any negative entry; an infinite q(x) rejects x. So the output keeps the
    target's distribution if a whole row is NaN (as after a softmax over one NaN), whatever was
    drafted there, and if the tokens whose entry is NaN are drafted either never or always. It does
    not if they are drafted sometimes, because then the sampled draft decides whether it is judged,
    nor if a row is not a distribution for other reasons. Whatever ``draft_probs`` holds, nothing is
    read out of bounds, all tokens are in the vocabulary, and all backends return the same ones.

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
        draft_probs: float32 [num_drafts, vocab_size], the distributions the drafts were sampled
            from; None if all drafts are one-hot. For NaN see above. Greedy requests ignore it.
        accept_uniform: float64 [num_drafts] in [0, 1), decides acceptance.
        sample_uniform: float64 [num_reqs] in [0, 1), draws the correction or the bonus token.
        rule: how drafts are accepted: ``"token"`` judges one at a time, ``"block"`` all together.
        backend: name of a backend; None picks the best for the device of ``logits``.

    Returns:
        ``output_token_ids``, int32 [num_reqs, max_draft_len + 1] padded with -1, and
        ``num_output_tokens``, int32 [num_reqs], from 1 to max_draft_len + 1 each.

    Raises:
        ValueError: an argument has the wrong shape, dtype or value; the message names it.
        BackendUnavailableError: there is no backend of that name.
    """
    check_drafts(logits, draft_token_ids, cu_num_draft_tokens, max_draft_len)
    if rule not in RULES:
        raise refusal("rule", f"{rule!r} is not one of {RULES}")
    num_drafts, num_reqs = draft_token_ids.shape[0], cu_num_draft_tokens.shape[0]
    check_sampling(num_reqs, logits.device, temperature, top_k, top_p, min_p)
    for name, tensor, shape, dtype in (
        ("draft_probs", draft_probs, (num_drafts, logits.shape[1]), torch.float32),
        ("accept_uniform", accept_uniform, (num_drafts,), torch.float64),
        ("sample_uniform", sample_uniform, (num_reqs,), torch.float64),
    ):
        if tensor is not None:
            check_tensor(name, tensor, shape, (dtype,), logits.device)
    if logits.device.type == "cpu":
        check_values("accept_uniform", accept_uniform, 0.0, BELOW_ONE, "is not in [0, 1)")
        check_values("sample_uniform", sample_uniform, 0.0, BELOW_ONE, "is not in [0, 1)")
    return OP.backend(backend, logits.device)(
        logits,
        draft_token_ids,
        cu_num_draft_tokens,
        max_draft_len,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        draft_probs=draft_probs,
        accept_uniform=accept_uniform,
        sample_uniform=sample_uniform,
        rule=rule,
    )


OP.register(verify_sample, fake_outputs)
