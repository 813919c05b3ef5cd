"""Prepare the inputs of draft step 1 in host memory.

vLLM prepares these inputs with kernels (vllm/v1/spec_decode/utils.py), because a GPU must not wait
for the host. On a CPU such a kernel goes through PyTorch's dispatcher for each argument and
converts most of them; for a handful of numbers that is the whole cost. The target's forward pass
has emptied the caches, so each library function is first read from memory: plain Python is faster
than NumPy, because its interpreter is in use all the time.
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
    """Mixin, before vLLM's proposer: prepares our loop's inputs on the host, with equal results."""

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
            discard_request_mask: bool, requests still in prefill.

        Returns:
            Two tensors, int32 [num_reqs]: last token and number of sampled tokens of each request.
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
                # A request that sampled nothing drafts after its last known token.
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
        """Return the metadata of draft step 1, with rejected tokens; the signature is vLLM's.

        Returns:
            The metadata, and two tensors, int32 [num_reqs]: the row of each request's last
            accepted token, and the number of rejected tokens after it.
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


class FirstStepInputs(NamedTuple):
    """What the draft reads in draft step 1.

    Attributes:
        token_ids: int32 [num_tokens].
        positions: int64 [num_tokens].
        hidden: [num_tokens, hidden_size], states of the target; None if the draft reads none.
        rows: int32 [num_reqs], the row of each request that yields its first draft.
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
    """Shift the tokens by one place, with each request's next token in its last row.

    The result is what vLLM's ``SpecDecodeBaseProposer.set_inputs_first_pass`` writes to its buffer
    (vllm/v1/spec_decode/llm_base_proposer.py), for tensors in host memory.

    Args:
        token_ids: int32, the target's input tokens.
        next_token_ids: int32, the token sampled last for each request.
        rows: int32, the row in which each of these goes.

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
) -> tuple[FirstStepInputs, CommonAttentionMetadata]:
    """Return the inputs of a draft model: each request's tokens, followed by its next token.

    The result is that of vLLM's ``SpecDecodeBaseProposer.set_inputs_first_pass`` with one extra
    slot per request (vllm/v1/spec_decode/llm_base_proposer.py), for tensors in host memory.
    Rejected tokens come last, at position 0, and are written nowhere.

    Args:
        token_ids: int32, the target's input tokens.
        positions: int64, their positions.
        next_token_ids: int32, the token sampled last for each request.
        num_rejected: int32, number of rejected tokens at the end of each request, or None.
        metadata: attention metadata of the target.
        block_size: tokens per block of the KV cache.
        max_model_len: maximum number of tokens in a request.

    Returns:
        Inputs with ``num_tokens + num_reqs`` rows, and their attention metadata.
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
    inputs = FirstStepInputs(
        torch.tensor(ids, dtype=torch.int32),
        torch.tensor(places),
        None,
        torch.tensor(rows, dtype=torch.int32),
    )
    return inputs, extended
