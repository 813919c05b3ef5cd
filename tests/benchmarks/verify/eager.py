"""The peer "PyTorch eager" of ``benchmarks verify``: verification in plain PyTorch.

The formulas are vLLM's: float32 softmax, top-k and top-p by sorting, sampling by exponential noise.
All requests have the same number of drafts here, so this peer needs no indexing of ragged rows. It
samples the last token from only one row per request.
"""

from __future__ import annotations

import torch

from tests.benchmarks.verify.cases import VerifyBatch

NEGATIVE_INFINITY = float("-inf")


def verify(batch: VerifyBatch) -> torch.Tensor:
    """Verify a batch of greedy requests or of sampled requests.

    Returns:
        Tokens, int64 [num_reqs, num_drafts + 1], padded with -1.
    """
    if not bool(batch.temperature.any()):
        return verify_greedy(batch)
    return verify_sampled(batch)


def verify_greedy(batch: VerifyBatch) -> torch.Tensor:
    """Accept the drafts that are the argmax."""
    best = batch.logits.argmax(dim=-1).view(-1, batch.num_drafts + 1)
    accepted = best[:, :-1] == batch.draft_token_ids.view(-1, batch.num_drafts)
    return _cut(best, accepted.int().cumprod(1).sum(1))


def verify_sampled(batch: VerifyBatch) -> torch.Tensor:
    """Accept by the token rule and sample the token after the last accepted draft."""
    num_reqs, vocab, num_drafts = len(batch.temperature), batch.logits.shape[1], batch.num_drafts
    top_k, top_p = (
        None if values is None else values.repeat_interleave(num_drafts + 1)
        for values in (batch.top_k, batch.top_p)
    )
    temperature = batch.temperature.repeat_interleave(num_drafts + 1)
    logits = batch.logits.float() / temperature[:, None]
    if top_k is not None or top_p is not None:
        logits = _filter(logits, top_k, top_p)
    p = logits.softmax(-1, dtype=torch.float32).view(num_reqs, num_drafts + 1, vocab)
    drafts = batch.draft_token_ids.view(num_reqs, num_drafts).long()
    ratio = p[:, :-1].gather(2, drafts[:, :, None])[:, :, 0]
    q = None if batch.draft_probs is None else batch.draft_probs.view(num_reqs, num_drafts, vocab)
    if q is not None:
        ratio = ratio / q.gather(2, drafts[:, :, None])[:, :, 0]
    accepted = batch.accept_uniform.view(num_reqs, num_drafts) < ratio
    num_accepted = accepted.int().cumprod(1).sum(1)
    weights = _residual(p, q, drafts, num_accepted)
    noise = torch.empty_like(weights).exponential_()
    tokens = torch.nn.functional.pad(drafts, (0, 1))
    tokens.scatter_(1, num_accepted[:, None], (weights / noise).argmax(-1, keepdim=True))
    return _cut(tokens, num_accepted)


def _filter(
    logits: torch.Tensor,  # [num_rows, vocab_size]
    top_k: torch.Tensor | None,  # [num_rows]
    top_p: torch.Tensor | None,  # [num_rows]
) -> torch.Tensor:
    ordered, index = logits.sort(dim=-1)
    if top_k is not None:
        kth = ordered.gather(1, (logits.shape[1] - top_k.long())[:, None])
        ordered = ordered.masked_fill(ordered < kth, NEGATIVE_INFINITY)
    if top_p is not None:
        below = ordered.softmax(-1).cumsum(-1) <= 1 - top_p[:, None]
        below[:, -1] = False
        ordered = ordered.masked_fill(below, NEGATIVE_INFINITY)
    return torch.empty_like(logits).scatter_(1, index, ordered)


def _residual(
    p: torch.Tensor,  # [num_reqs, num_drafts + 1, vocab_size]
    q: torch.Tensor | None,  # [num_reqs, num_drafts, vocab_size]
    drafts: torch.Tensor,  # [num_reqs, num_drafts]
    num_accepted: torch.Tensor,  # [num_reqs]
) -> torch.Tensor:
    """Return the weights that the last token is sampled from, [num_reqs, vocab_size]."""
    num_drafts = drafts.shape[1]
    if num_drafts == 0:
        return p[:, 0]
    request = torch.arange(len(p), device=p.device)
    weights = p[request, num_accepted]
    position = num_accepted.clamp(max=num_drafts - 1)
    if q is not None:
        rest = (weights - q[request, position]).clamp_(min=0)
    else:
        rest = weights.scatter(1, drafts.gather(1, position[:, None]), 0.0)
    return torch.where((num_accepted < num_drafts)[:, None], rest, weights)


def _cut(tokens: torch.Tensor, num_accepted: torch.Tensor) -> torch.Tensor:
    offsets = torch.arange(tokens.shape[1], device=tokens.device)
    return tokens.masked_fill(offsets > num_accepted[:, None], -1)
