"""FusedInferAttentionScore, second interface: other names, and an attention sink.

Documented in torch_npu's docstrings (`npu_fused_infer_attention_score_v2`). The limits and what is
not honoured are those of the first interface.
"""

from typing import Any

import torch

from npu_sim.references.checks import refuse, require
from npu_sim.references.fused_infer_attention import run, write_out
from npu_sim.references.fused_infer_problem import UNLIMITED, Problem
from npu_sim.references.registry import reference


@reference("npu::npu_fused_infer_attention_score_v2")
def fused_infer_attention_score_v2(
    query: torch.Tensor,  # [tokens, heads, size] (TND), or by input_layout
    key: torch.Tensor,  # likewise, or a paged cache
    value: torch.Tensor,  # likewise
    *,
    query_rope: torch.Tensor | None = None,  # query's shape with a size of its own
    key_rope: torch.Tensor | None = None,  # key's shape with query_rope's size
    atten_mask: torch.Tensor | None = None,  # [2048, 2048] for modes 2 to 4, else [q_len, kv_len]
    actual_seq_qlen: list[int] | None = None,  # cumulative for TND
    actual_seq_kvlen: list[int] | None = None,  # cumulative for TND without a paged cache
    block_table: torch.Tensor | None = None,  # [batch, max_blocks], int32
    learnable_sink: torch.Tensor | None = None,  # [heads]: a logit that takes part in the sum
    num_query_heads: int = 1,
    num_key_value_heads: int = 0,
    softmax_scale: float = 1.0,
    pre_tokens: int = UNLIMITED,
    next_tokens: int = UNLIMITED,
    input_layout: str = "BSH",
    sparse_mode: int = 0,
    block_size: int = 0,
    inner_precise: int = 0,
    return_softmax_lse: bool = False,
    **unhonoured: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attend within each sequence; see `fused_infer_attention_score`."""
    refuse(**unhonoured)
    require(inner_precise in (0, 1, 2, 3), f"inner_precise is {inner_precise}; valid: 0 to 3")
    problem = Problem(
        query=query,
        key=key,
        value=value,
        mask=atten_mask,
        q_lengths=actual_seq_qlen,
        kv_lengths=actual_seq_kvlen,
        block_table=block_table,
        num_heads=num_query_heads,
        num_kv_heads=num_key_value_heads or num_query_heads,
        scale=softmax_scale,
        pre_tokens=pre_tokens,
        next_tokens=next_tokens,
        layouts=input_layout,
        sparse_mode=sparse_mode,
        block_size=block_size,
        query_rope=query_rope,
        key_rope=key_rope,
        sink=learnable_sink,
        want_lse=return_softmax_lse,
    )
    return run(problem)


@reference("npu::npu_fused_infer_attention_score_v2.out")
def fused_infer_attention_score_v2_out(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    workspace: torch.Tensor | None = None,
    out: list[torch.Tensor],
    **arguments: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Do the same into `out`: [attention_out, softmax_lse]."""
    result = fused_infer_attention_score_v2(query, key, value, **arguments)
    return write_out(result, workspace, out, bool(arguments.get("return_softmax_lse")))


@reference("npu::_npu_fused_infer_attention_score_v2_get_max_workspace", host_only=True)
def get_max_workspace_v2(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **arguments: Any
) -> torch.Tensor:
    """Give a workspace for any lengths; the reference needs none, so one byte."""
    return torch.empty(1, dtype=torch.uint8, device=query.device)
