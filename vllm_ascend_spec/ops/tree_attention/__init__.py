"""``tree_attention``: attention to paged keys along the paths of trees of drafts."""

from __future__ import annotations

import torch

from vllm_ascend_spec.ops.checks import INT32_DTYPES, check_tensor, refusal
from vllm_ascend_spec.ops.registry import Op

# Not in ``torch.ops``: vLLM's own op for the attention of a layer calls it.
OP = Op(name="tree_attention", schema="", backends=("triton", "reference"))
# A row's bits are about as many tokens.
NUM_BITS = 64


def tree_attention(
    query: torch.Tensor,  # [num_tokens, num_heads, head_size]
    key_cache: torch.Tensor,  # [num_blocks, block_size, num_kv_heads, head_size]
    value_cache: torch.Tensor,  # [num_blocks, block_size, num_kv_heads, head_size]
    output: torch.Tensor,  # [num_tokens, num_heads, head_size]
    seen: torch.Tensor,  # [num_tokens]
    query_start_loc: torch.Tensor,  # [num_reqs + 1]
    seq_lens: torch.Tensor,  # [num_reqs]
    block_table: torch.Tensor,  # [num_reqs, max_blocks]
    *,
    scale: float,
    soft_cap: float = 0.0,
    window: int = 0,
    sinks: torch.Tensor | None = None,  # [num_heads]
    is_batch_invariant: bool = False,
    backend: str | None = None,
) -> None:
    """Attend with the last tokens of each request, those of a tree along their own paths.

    The keys of a request are in the order of the list that the scheduler sees: the text, then the
    nodes of the tree, each after its parent. A row is one of these tokens. It sees none after it,
    and of the last 64 tokens of its request those that its bits name; all others before it, it
    sees. So ``-1`` is a row of a text or of a chain, and rows of prompts, chains and trees may
    share a batch.

    The position of a row is its place in the list, less the tokens before it that it does not see:
    the root's and its depth. A window counts from there. It must not be so short that a node would
    not see all of its path.

    A request with more rows than tokens is one of a dummy run; whatever its rows get is finite.

    Softmax and sums are float32. Backends differ by the order of their sums.

    Args:
        query: float32, bfloat16 or float16 [num_tokens, num_heads, head_size]; the head dimension
            is contiguous. Tokens behind the last request's are not read.
        key_cache: of the same dtype [num_blocks, block_size, num_kv_heads, head_size], any strides
            but that of the head dimension. It holds the keys of all rows.
        value_cache: like ``key_cache``.
        output: like ``query``, written; rows behind the last request's are left alone.
        seen: int64 [num_tokens]; bit b says whether the row sees the token b places before the
            last one of its request. Bits of tokens after the row have to be set.
        query_start_loc: int32 [num_reqs + 1], first row of each request. Requests without rows pad
            a batch.
        seq_lens: int32 [num_reqs], number of tokens of each request, those of its rows included.
        block_table: int32 [num_reqs, max_blocks].
        scale: of the products of queries and keys.
        soft_cap: of the scaled products, c * tanh(x / c); 0 for none.
        window: number of tokens up to its own that a row sees at most; 0 for all. At least
            :data:`NUM_BITS`, which is enough for any tree.
        sinks: [num_heads], a weight's logarithm in each head's softmax that no value belongs to.
        is_batch_invariant: whether the order of a row's sums is the same in every batch.
        backend: name of a backend; None picks the best for the device of ``query``.

    Raises:
        ValueError: an argument has the wrong shape, dtype or value; the message names it.
        BackendUnavailableError: there is no backend of that name.
    """
    num_tokens, num_heads, _ = query.shape
    num_reqs, device = seq_lens.shape[0], query.device
    check_tensor("seen", seen, (num_tokens,), (torch.int64,), device)
    check_tensor("query_start_loc", query_start_loc, (num_reqs + 1,), INT32_DTYPES, device)
    if num_heads % key_cache.shape[2]:
        raise refusal("query", f"{num_heads} heads, no multiple of {key_cache.shape[2]}")
    if 0 < window < NUM_BITS:
        raise refusal("window", f"{window}, valid: 0, or {NUM_BITS} and more")
    OP.backend(backend, device)(
        query,
        key_cache,
        value_cache,
        output,
        seen,
        query_start_loc,
        seq_lens,
        block_table,
        scale=scale,
        soft_cap=soft_cap,
        window=window,
        sinks=sinks,
        is_batch_invariant=is_batch_invariant,
    )
