"""FusedInferAttentionScore (FIA): attention for inference, with or without a paged cache.

Documented in torch_npu's docstrings (`npu_fused_infer_attention_score` and its `.out`). What the
arguments must look like is in `fused_infer_problem.py`. Honoured here: layouts by token (TND) and
padded (BSH, BSND, BNSD), also with a result that is laid out otherwise; caches of
[blocks, block_size, kv_heads * size] and [blocks, kv_heads, block_size, size]; grouped heads;
sparse modes 0 to 4; MLA's parts with and without rope; the softmax's log sum. Not honoured, and
refused: quantisation, position biases, padding on the left, shared prefixes.

float32 is accepted although a real NPU takes float16 and bfloat16 only: the simulator's tests
compare tokens with a CPU's, which needs float32.
"""

from typing import Any

import torch

from npu_sim.references.attention import attend
from npu_sim.references.checks import refuse, require, require_dtype
from npu_sim.references.fused_infer_problem import LAYOUTS, UNLIMITED, Problem
from npu_sim.references.fused_infer_sequences import OneSequence, sequences, write_back
from npu_sim.references.registry import reference


def run(problem: Problem) -> tuple[torch.Tensor, torch.Tensor]:
    """Give the attention in the layout asked for, and its log sums or a single 0."""
    out = problem.query.new_zeros(problem.out_shape)
    parts: list[tuple[OneSequence, torch.Tensor]] = []
    for seq in sequences(problem):
        result, log_sum = attend(
            seq.query, seq.key, seq.value, problem.scale, seq.masked, problem.sink
        )
        write_back(problem, out, seq, result)
        parts.append((seq, log_sum))
    order = LAYOUTS[problem.layouts]
    if order != tuple(range(out.dim())):
        out = out.permute(order).contiguous()
    return out, _log_sums(problem, parts) if problem.want_lse else out.new_zeros(
        1, dtype=torch.float32
    )


def _log_sums(problem: Problem, parts: list[tuple[OneSequence, torch.Tensor]]) -> torch.Tensor:
    """Give [tokens, heads, 1] for TND, [batch, heads, q_len, 1] for the others, +inf if unused."""
    heads, device = problem.num_heads, problem.query.device
    if problem.layout == "TND":
        shape: tuple[int, ...] = (problem.query.shape[0], heads, 1)
    else:
        shape = (problem.batch, heads, problem.q_size, 1)
    sums = torch.full(shape, float("inf"), dtype=torch.float32, device=device)
    for seq, log_sum in parts:
        if problem.layout == "TND":
            sums[seq.first : seq.first + seq.q_len, :, 0] = log_sum
        else:
            sums[seq.index, :, : seq.q_len, 0] = log_sum.t()
    return sums


@reference("npu::npu_fused_infer_attention_score")
def fused_infer_attention_score(
    query: torch.Tensor,  # [tokens, heads, size] (TND), or by input_layout
    key: torch.Tensor,  # likewise, or a paged cache
    value: torch.Tensor,  # likewise
    *,
    atten_mask: torch.Tensor | None = None,  # [2048, 2048] for modes 2 to 4, else [q_len, kv_len]
    actual_seq_lengths: list[int] | None = None,  # cumulative for TND
    actual_seq_lengths_kv: list[int] | None = None,  # cumulative for TND without a paged cache
    block_table: torch.Tensor | None = None,  # [batch, max_blocks], int32
    query_rope: torch.Tensor | None = None,  # query's shape with a size of its own
    key_rope: torch.Tensor | None = None,  # key's shape with query_rope's size
    num_heads: int = 1,
    scale: float = 1.0,
    pre_tokens: int = UNLIMITED,
    next_tokens: int = UNLIMITED,
    input_layout: str = "BSH",
    num_key_value_heads: int = 0,
    sparse_mode: int = 0,
    inner_precise: int = 0,
    block_size: int = 0,
    softmax_lse_flag: bool = False,
    **unhonoured: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attend within each sequence.

    `inner_precise` chooses between exactness and speed on a real NPU and changes nothing here.

    Returns:
        The attention in the query's dtype and shape (with the value's size of head), and the
        logarithms of the softmax's sums in float32: [tokens, heads, 1] or
        [batch, heads, q_len, 1]; [1] and 0 without softmax_lse_flag.
    """
    refuse(**unhonoured)
    require(inner_precise in (0, 1, 2, 3), f"inner_precise is {inner_precise}; valid: 0 to 3")
    problem = Problem(
        query=query,
        key=key,
        value=value,
        mask=atten_mask,
        q_lengths=actual_seq_lengths,
        kv_lengths=actual_seq_lengths_kv,
        block_table=block_table,
        num_heads=num_heads,
        num_kv_heads=num_key_value_heads or num_heads,
        scale=scale,
        pre_tokens=pre_tokens,
        next_tokens=next_tokens,
        layouts=input_layout,
        sparse_mode=sparse_mode,
        block_size=block_size,
        query_rope=query_rope,
        key_rope=key_rope,
        want_lse=softmax_lse_flag,
    )
    return run(problem)


def write_out(
    result: tuple[torch.Tensor, torch.Tensor],
    workspace: torch.Tensor | None,
    out: list[torch.Tensor],
    want_lse: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Copy a result into the caller's tensors; their number of elements must agree."""
    require(len(out) == 2, f"out holds {len(out)} tensors; valid: attention_out, softmax_lse")
    if workspace is not None:
        require(workspace.dim() == 1, "workspace must have one dimension")
    attention, log_sum = result
    require(
        out[0].numel() == attention.numel(),
        f"attention_out has shape {tuple(out[0].shape)}, not {tuple(attention.shape)}",
    )
    require_dtype("attention_out", out[0], (attention.dtype,))
    out[0].copy_(attention.view(out[0].shape))
    if want_lse:
        require(out[1].numel() == log_sum.numel(), "softmax_lse does not fit")
        require_dtype("softmax_lse", out[1], (torch.float32,))
        out[1].copy_(log_sum.view(out[1].shape))
    return out[0], out[1]


@reference("npu::npu_fused_infer_attention_score.out")
def fused_infer_attention_score_out(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    workspace: torch.Tensor | None = None,
    out: list[torch.Tensor],
    **arguments: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Do the same into `out`: [attention_out, softmax_lse]. This one may be updated in graphs."""
    result = fused_infer_attention_score(query, key, value, **arguments)
    return write_out(result, workspace, out, bool(arguments.get("softmax_lse_flag")))


@reference("npu::_npu_fused_infer_attention_score_get_max_workspace", host_only=True)
def get_max_workspace(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **arguments: Any
) -> torch.Tensor:
    """Give a workspace for any lengths; the reference needs none, so one byte."""
    return torch.empty(1, dtype=torch.uint8, device=query.device)
