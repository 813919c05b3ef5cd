"""What the first pass of a draft reads, worked out in host memory.

vLLM prepares these inputs by kernels (vllm/v1/spec_decode/utils.py), because a GPU must not wait
for the host. On a CPU a kernel is a call of PyTorch's dispatcher for each of its arguments, and
converts most of them; on a handful of numbers that is all the cost. NumPy has less of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm.v1.attention.backend import CommonAttentionMetadata
    from vllm.v1.spec_decode.metadata import SpecDecodeMetadata

PADDING_SLOT = -1


class HostInputsMixin:
    """Mix into vLLM's proposer, before it in the bases: the same results where our loop runs."""

    device: torch.device
    uses_own_loop: bool

    def prepare_next_token_ids_padded(
        self,
        sampled_token_ids: torch.Tensor,  # [num_reqs, K+1]
        requests: Mapping[str, Any],
        gpu_input_batch: Any,
        discard_request_mask: torch.Tensor,  # [max_num_reqs]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the token after which each request drafts; the signature is vLLM's.

        Args:
            sampled_token_ids: int32 or int64, -1 where a draft was rejected.
            requests: the states of requests by id.
            gpu_input_batch: the batch of the runner.
            discard_request_mask: bool, requests whose prompt goes on.

        Returns:
            int32 [num_reqs] each: the last token of each request, and how many it sampled.
        """
        if self.device.type != "cpu" or not self.uses_own_loop:
            return super().prepare_next_token_ids_padded(  # type: ignore[misc]
                sampled_token_ids, requests, gpu_input_batch, discard_request_mask
            )
        tokens = sampled_token_ids.numpy()
        num_reqs, width = tokens.shape
        # Without a sign -1 is the largest number.
        valid = tokens.view(f"u{tokens.itemsize}") < gpu_input_batch.vocab_size
        discarded = discard_request_mask.numpy()[:num_reqs]
        if discarded.any():
            valid[discarded] = False
        last = width - 1 - valid[:, ::-1].argmax(axis=1)
        following = tokens[np.arange(num_reqs), last].astype(np.int32)
        counts = valid.sum(axis=1, dtype=np.int32)
        if not counts.all():
            # A request that sampled nothing goes on after what it has.
            for index in np.flatnonzero(counts == 0):
                state = requests[gpu_input_batch.req_ids[index]]
                end = int(gpu_input_batch.num_tokens_no_spec[index])
                following[index] = state.get_token_id(end - 1)
        return torch.from_numpy(following), torch.from_numpy(counts)

    def prepare_inputs_padded(
        self,
        common_attn_metadata: CommonAttentionMetadata,
        spec_decode_metadata: SpecDecodeMetadata,
        valid_sampled_tokens_count: torch.Tensor,  # [num_reqs]
    ) -> tuple[CommonAttentionMetadata, torch.Tensor, torch.Tensor]:
        """Return what the first pass attends to, rejected tokens included; the signature is vLLM's.

        Returns:
            The metadata; int32 [num_reqs] each: the row of the last accepted token of each
            request, and how many rejected ones come after it.
        """
        stock = common_attn_metadata
        if self.device.type != "cpu" or not self.uses_own_loop:
            return super().prepare_inputs_padded(  # type: ignore[misc]
                stock, spec_decode_metadata, valid_sampled_tokens_count
            )
        starts = stock.query_start_loc_cpu.numpy()
        ends_of_drafts = spec_decode_metadata.cu_num_draft_tokens.numpy()
        num_drafts = ends_of_drafts.copy()
        num_drafts[1:] -= ends_of_drafts[:-1]
        rejected = num_drafts + 1 - valid_sampled_tokens_count.numpy()
        rejected *= num_drafts > 0
        rows = starts[1:] - 1 - rejected
        num_tokens = int(starts[-1])
        metadata = type(stock)(
            query_start_loc=stock.query_start_loc,
            seq_lens=stock.seq_lens,
            query_start_loc_cpu=stock.query_start_loc_cpu,
            seq_lens_cpu_upper_bound=stock.seq_lens_cpu_upper_bound,
            num_reqs=stock.num_reqs,
            num_actual_tokens=num_tokens,
            max_query_len=int((starts[1:] - starts[:-1]).max()),
            max_seq_len=stock.max_seq_len,
            block_table_tensor=stock.block_table_tensor,
            slot_mapping=stock.slot_mapping[:num_tokens],
            causal=True,
            dcp_local_seq_lens=stock.dcp_local_seq_lens,
        )
        return metadata, torch.from_numpy(rows), torch.from_numpy(rejected)


class FirstPass(NamedTuple):
    """What a draft reads in its first pass.

    Attributes:
        token_ids: int32 [num_tokens].
        positions: int64 [num_tokens].
        hidden: [num_tokens, hidden_size], states of the target; None if the draft reads none.
        rows: int32 [num_reqs], the row of each request that the first draft comes from.
    """

    token_ids: torch.Tensor
    positions: torch.Tensor
    hidden: torch.Tensor | None
    rows: torch.Tensor


def rotated(
    token_ids: torch.Tensor,  # [num_tokens]
    next_token_ids: torch.Tensor,  # [num_reqs]
    rows: torch.Tensor,  # [num_reqs]
) -> torch.Tensor:
    """Return the tokens one place on, each request's next token in its last row.

    The same as vLLM's ``SpecDecodeBaseProposer.set_inputs_first_pass`` writes to its buffer
    (vllm/v1/spec_decode/llm_base_proposer.py), for tensors in host memory.

    Args:
        token_ids: int32, what the target read.
        next_token_ids: int32, what it sampled last.
        rows: int32, where.

    Returns:
        int32 [num_tokens].
    """
    following = np.empty(token_ids.shape[0], np.int32)
    following[:-1] = token_ids.numpy()[1:]
    following[-1] = 0  # a rejected token's place, or overwritten
    following[rows.numpy()] = next_token_ids.numpy()
    return torch.from_numpy(following)


def with_next_tokens(
    token_ids: torch.Tensor,  # [num_tokens]
    positions: torch.Tensor,  # [num_tokens]
    next_token_ids: torch.Tensor,  # [num_reqs]
    num_rejected: torch.Tensor | None,  # [num_reqs]
    metadata: CommonAttentionMetadata,
    block_size: int,
    max_model_len: int,
) -> tuple[FirstPass, CommonAttentionMetadata]:
    """Return what a draft model reads: each request's tokens, and its next token behind them.

    The same as vLLM's ``SpecDecodeBaseProposer.set_inputs_first_pass`` with one more slot for each
    request (vllm/v1/spec_decode/llm_base_proposer.py), for tensors in host memory. Rejected
    tokens come last, at position 0, and are written nowhere.

    Args:
        token_ids: int32, what the target read.
        positions: int64, where.
        next_token_ids: int32, what it sampled last.
        num_rejected: int32, how many of the last tokens of a request were rejected; None: none.
        metadata: what the target attended to.
        block_size: tokens per block of the KV cache.
        max_model_len: most tokens of a request.

    Returns:
        Inputs of ``num_tokens + num_reqs`` rows, and what the draft attends to in them.
    """
    starts, num_reqs = metadata.query_start_loc_cpu.numpy(), next_token_ids.shape[0]
    lengths = starts[1:] - starts[:-1]
    kept = lengths if num_rejected is None else lengths - num_rejected.numpy()
    new_starts = starts + np.arange(num_reqs + 1, dtype=np.int32)
    request: np.ndarray = np.repeat(np.arange(num_reqs), lengths + 1)
    place = np.arange(request.shape[0]) - new_starts[request]
    dropped = place > kept[request]
    first = starts[request]
    rows = new_starts[:-1] + kept
    ids = token_ids.numpy()[np.minimum(first + place, token_ids.shape[0] - 1)]
    ids[dropped] = 0
    ids[rows] = next_token_ids.numpy()
    at = positions.numpy()[first] + place
    at[dropped] = 0
    blocks, offsets = np.divmod(np.minimum(at, max_model_len - 1), block_size)
    slots = metadata.block_table_tensor.numpy()[request, blocks] * np.int64(block_size) + offsets
    slots[dropped | (at >= max_model_len)] = PADDING_SLOT
    boundaries = torch.from_numpy(new_starts)
    extended = metadata.replace(
        query_start_loc=boundaries,
        query_start_loc_cpu=boundaries,
        seq_lens=metadata.seq_lens + 1,
        num_actual_tokens=request.shape[0],
        max_query_len=metadata.max_query_len + 1,
        max_seq_len=metadata.max_seq_len + 1,
        slot_mapping=torch.from_numpy(slots),
    )
    inputs = FirstPass(torch.from_numpy(ids), torch.from_numpy(at), None, torch.from_numpy(rows))
    return inputs, extended
