"""What the first pass of a draft reads, worked out in host memory.

vLLM prepares these inputs by kernels (vllm/v1/spec_decode/utils.py), because a GPU must not wait
for the host. On a CPU a kernel is a call of PyTorch's dispatcher for each of its arguments, and
converts most of them; on a handful of numbers that is all the cost. The target's forward pass has
emptied the caches, so each library function that is called is read from memory first: plain Python,
whose interpreter is in use all the time, takes less than NumPy.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

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
        vocab_size = gpu_input_batch.vocab_size
        discarded = discard_request_mask.tolist()
        following, counts = [], []
        for index, tokens in enumerate(sampled_token_ids.tolist()):
            valid = [] if discarded[index] else [t for t in tokens if 0 <= t < vocab_size]
            counts.append(len(valid))
            if not valid:
                # A request that sampled nothing goes on after what it has.
                state = requests[gpu_input_batch.req_ids[index]]
                end = int(gpu_input_batch.num_tokens_no_spec[index])
                valid = [state.get_token_id(end - 1)]
            following.append(valid[-1])
        return torch.tensor(following, dtype=torch.int32), torch.tensor(counts, dtype=torch.int32)

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
        starts = stock.query_start_loc_cpu.tolist()
        ends_of_drafts = spec_decode_metadata.cu_num_draft_tokens.tolist()
        rows, rejected, before = [], [], 0
        for index, count in enumerate(valid_sampled_tokens_count.tolist()):
            num_drafts = ends_of_drafts[index] - before
            before = ends_of_drafts[index]
            rejected.append(num_drafts + 1 - count if num_drafts else 0)
            rows.append(starts[index + 1] - 1 - rejected[index])
        num_tokens = starts[-1]
        metadata = type(stock)(
            query_start_loc=stock.query_start_loc,
            seq_lens=stock.seq_lens,
            query_start_loc_cpu=stock.query_start_loc_cpu,
            seq_lens_cpu_upper_bound=stock.seq_lens_cpu_upper_bound,
            num_reqs=stock.num_reqs,
            num_actual_tokens=num_tokens,
            max_query_len=max(end - start for start, end in pairwise(starts)),
            max_seq_len=stock.max_seq_len,
            block_table_tensor=stock.block_table_tensor,
            slot_mapping=stock.slot_mapping[:num_tokens],
            causal=True,
            dcp_local_seq_lens=stock.dcp_local_seq_lens,
        )
        rejected_tokens = torch.tensor(rejected, dtype=torch.int32)
        return metadata, torch.tensor(rows, dtype=torch.int32), rejected_tokens


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
    following = token_ids.tolist()[1:]
    following.append(0)  # a rejected token's place, or overwritten
    for row, token in zip(rows.tolist(), next_token_ids.tolist(), strict=True):
        following[row] = token
    return torch.tensor(following, dtype=torch.int32)


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
    starts, read = metadata.query_start_loc_cpu.tolist(), token_ids.tolist()
    following = next_token_ids.tolist()
    dropped = [0] * len(following) if num_rejected is None else num_rejected.tolist()
    table = metadata.block_table_tensor.numpy()
    boundaries, rows, ids, places, slots = [0], [], [], [], []
    for index, (start, end) in enumerate(pairwise(starts)):
        kept = end - dropped[index]
        first = int(positions[start])
        here = range(first, first + kept - start + 1)
        blocks = table[index, : (min(here[-1], max_model_len - 1)) // block_size + 1].tolist()
        nothing = [0] * dropped[index]
        rows.append(boundaries[-1] + kept - start)
        ids += [*read[start:kept], following[index], *nothing]
        places += [*here, *nothing]
        slots += [
            blocks[place // block_size] * block_size + place % block_size
            if place < max_model_len
            else PADDING_SLOT
            for place in here
        ]
        slots += [PADDING_SLOT] * dropped[index]
        boundaries.append(len(ids))
    starts_of_all = torch.tensor(boundaries, dtype=torch.int32)
    extended = metadata.replace(
        query_start_loc=starts_of_all,
        query_start_loc_cpu=starts_of_all,
        seq_lens=metadata.seq_lens + 1,
        num_actual_tokens=len(ids),
        max_query_len=metadata.max_query_len + 1,
        max_seq_len=metadata.max_seq_len + 1,
        slot_mapping=torch.tensor(slots),
    )
    inputs = FirstPass(
        torch.tensor(ids, dtype=torch.int32),
        torch.tensor(places),
        None,
        torch.tensor(rows, dtype=torch.int32),
    )
    return inputs, extended
