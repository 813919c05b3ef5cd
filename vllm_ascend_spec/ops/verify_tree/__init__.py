"""``verify_tree``: sample the target along a tree of drafts, with noise of seed and position."""

from __future__ import annotations

import itertools

import torch

from vllm_ascend_spec.ops import layout
from vllm_ascend_spec.ops.checks import (
    INT32_DTYPES,
    check_drafts,
    check_sampling,
    check_tensor,
    refusal,
)
from vllm_ascend_spec.ops.registry import Op

OP = Op(
    name="verify_tree",
    schema=(
        "(Tensor logits, Tensor draft_token_ids, Tensor cu_num_draft_tokens, int max_draft_len, *,"
        " Tensor parents, Tensor temperature, Tensor? top_k=None, Tensor? top_p=None,"
        " Tensor? min_p=None, Tensor seeds, Tensor positions) -> (Tensor, Tensor, Tensor)"
    ),
    backends=("cpu", "ascendc", "triton", "reference"),
)


def verify_tree(
    logits: torch.Tensor,  # [num_rows, vocab_size]
    draft_token_ids: torch.Tensor,  # [num_drafts]
    cu_num_draft_tokens: torch.Tensor,  # [num_reqs]
    max_draft_len: int,
    *,
    parents: torch.Tensor,  # [num_drafts]
    temperature: torch.Tensor,  # [num_reqs]
    top_k: torch.Tensor | None = None,  # [num_reqs]
    top_p: torch.Tensor | None = None,  # [num_reqs]
    min_p: torch.Tensor | None = None,  # [num_reqs]
    seeds: torch.Tensor,  # [num_reqs]
    positions: torch.Tensor,  # [num_reqs]
    backend: str | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sample the target at the root, go down to the child that holds the sample, and so on.

    The drafts of a request are the nodes of a tree. Its root is the text so far and holds no draft.
    Row 0 of a request has the logits that follow the root, row i + 1 those that follow node i, the
    drafts above it included. The walk starts at the root. The sample of a row is the one of
    :func:`~vllm_ascend_spec.ops.verify_seeded.verify_seeded`, with the noise of the seed and of the
    row's position; of a greedy request it is the argmax. If a child of the row's node holds the
    sample, the walk goes down to it, else it ends. The output is the samples on the way.

    So what the tokens are follows from the target, the seed and the position alone, as with
    ``verify_seeded``: they are a prefix of the text without drafts, and the tree decides only how
    long it is. No rule that keeps the target's law accepts more of a tree that is chosen without
    random numbers, such as one of the likeliest tokens: the walk goes down wherever the text does.

    Of the children of a node with the same token only the first counts: no others can be reached,
    and nothing below them. Rows that the walk does not come to have no effect. A chain (parents -1,
    0, 1, ...) gives the tokens and numbers of ``verify_seeded``. NaN, infinite logits, rows with
    nothing above -inf and rounding are treated as there.

    Args:
        logits: float32, bfloat16 or float16 [num_rows, vocab_size]; a request with n nodes has
            n + 1 rows, see above. Not modified.
        draft_token_ids: int32 [num_drafts], the token of each node; -1 marks a node that cannot be
            accepted, such as padding.
        cu_num_draft_tokens: int32 [num_reqs], inclusive; a request may have no nodes.
        max_draft_len: most nodes that a request may have; sets the width of the result.
        parents: int32 [num_drafts], index of each node's parent within its request; -1 is the root.
            A parent comes before its children, so the first nodes of a tree are a tree. A node of
            which that is not true cannot be reached (on a CPU it is an error).
        temperature: float32 [num_reqs]; 0 verifies the request greedily.
        top_k: int32 [num_reqs]; 0 or less turns it off.
        top_p: float32 [num_reqs] in (0, 1].
        min_p: float32 [num_reqs] in [0, 1]; 0 turns it off.
        seeds: int64 [num_reqs], any.
        positions: int64 [num_reqs], of the token that the request's row 0 yields. The token that a
            node's row yields is as many positions further as the node is deep: 1 below the root.
            The depth follows from ``parents``.
        backend: name of a backend; None picks the best for the device of ``logits``.

    Returns:
        ``output_token_ids``, int32 [num_reqs, max_draft_len + 1] padded with -1;
        ``num_output_tokens``, int32 [num_reqs], from 1 to max_draft_len + 1 each; and
        ``output_rows``, int32 [num_reqs, max_draft_len + 1], the row within the request that each
        output token was sampled from: 0, then those of the accepted nodes, padded with -1.

    Raises:
        ValueError: an argument has the wrong shape, dtype or value; the message names it.
        BackendUnavailableError: there is no backend of that name.
    """
    check_drafts(logits, draft_token_ids, cu_num_draft_tokens, max_draft_len)
    num_reqs = cu_num_draft_tokens.shape[0]
    check_sampling(num_reqs, logits.device, temperature, top_k, top_p, min_p)
    for name, tensor in (("seeds", seeds), ("positions", positions)):
        check_tensor(name, tensor, (num_reqs,), (torch.int64,), logits.device)
    check_tensor("parents", parents, draft_token_ids.shape, INT32_DTYPES, logits.device)
    if logits.device.type == "cpu":
        _check_order(parents, cu_num_draft_tokens)
    return OP.backend(backend, logits.device)(
        logits,
        draft_token_ids,
        cu_num_draft_tokens,
        max_draft_len,
        parents=parents,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        seeds=seeds,
        positions=positions,
    )


def fake_outputs(
    logits: torch.Tensor,  # [num_rows, vocab_size]
    draft_token_ids: torch.Tensor,  # [num_drafts]
    cu_num_draft_tokens: torch.Tensor,  # [num_reqs]
    max_draft_len: int,
    **_: object,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return outputs of the right shape and dtype, for tracing."""
    tokens, counts = layout.fake_outputs(
        logits, draft_token_ids, cu_num_draft_tokens, max_draft_len
    )
    return tokens, counts, torch.empty_like(tokens)


def _check_order(
    parents: torch.Tensor,  # [num_drafts]
    cu_num_draft_tokens: torch.Tensor,  # [num_reqs]
) -> None:
    """Check that each node's parent is the root or an earlier node of its request."""
    values = parents.tolist()
    for start, end in itertools.pairwise([0, *cu_num_draft_tokens.tolist()]):
        for node, parent in enumerate(values[start:end]):
            if not -1 <= parent < node:
                raise refusal("parents", f"{parent} is not in [-1, {node}), of node {node}")


OP.register(verify_tree, fake_outputs)
