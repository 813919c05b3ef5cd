"""Inputs of a draft model that needs more slots than the target's batch has.

The meaning of `npu_copy_and_expand_eagle_inputs` is defined by the host code and the kernel in
vllm-ascend's csrc/moe/copy_and_expand_eagle_inputs, and by how its proposer uses the outputs.
"""

import torch

from npu_sim.references.checks import require, require_dtype, require_shape
from npu_sim.references.registry import reference

# Tokens of one request, output and input, that the kernel's buffers hold; and slots.
MAX_TOKENS_PER_REQUEST = 4096
MAX_SLOTS = 64

Expanded = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def _outputs(like: torch.Tensor, num_outputs: int, num_new: int, num_inputs: int) -> Expanded:
    ints = (torch.int32, torch.int32, torch.int8, torch.int8)
    ids, positions, rejected, masked = (
        torch.zeros(num_outputs, dtype=dtype, device=like.device) for dtype in ints
    )
    new = torch.zeros(num_new, dtype=torch.int32, device=like.device)
    mapping = torch.zeros(num_inputs, dtype=torch.int32, device=like.device)
    return ids, positions, rejected, masked, new, mapping


def _meta(  # noqa: PLR0917 - the schema
    target_token_ids: torch.Tensor,
    target_positions: torch.Tensor,
    next_token_ids: torch.Tensor,
    query_start_loc: torch.Tensor,
    query_end_loc: torch.Tensor,
    padding_token_id: int,
    parallel_drafting_token_id: int,
    num_padding_slots_per_request: int,
    shift_input_ids: bool,
    total_draft_tokens: int,
) -> Expanded:
    num_new = (query_start_loc.shape[0] - 1) * num_padding_slots_per_request
    return _outputs(target_token_ids, total_draft_tokens, num_new, target_token_ids.shape[0])


def _check(total: int, slots: int, num_inputs: int, **tensors: torch.Tensor) -> None:
    for name, tensor in tensors.items():
        require_dtype(name, tensor, (torch.int32,))
        require(tensor.dim() == 1, f"{name} has {tensor.dim()} dimensions; valid: 1")
    require(
        1 <= slots <= MAX_SLOTS,
        f"num_padding_slots_per_request is {slots}; valid: 1 to {MAX_SLOTS}",
    )
    num_reqs = tensors["query_start_loc"].shape[0] - 1
    require(num_reqs >= 0, "query_start_loc is empty")
    for name in ("next_token_ids", "query_end_loc"):
        require_shape(name, tensors[name], num_reqs)
    require_shape("target_positions", tensors["target_positions"], num_inputs)
    require(total >= 0, f"total_draft_tokens is {total}")


@reference("_C_ascend::npu_copy_and_expand_eagle_inputs", meta=_meta)
def copy_and_expand_eagle_inputs(  # noqa: PLR0917 - the schema
    target_token_ids: torch.Tensor,  # [num_inputs], int32
    target_positions: torch.Tensor,  # [num_inputs], int32
    next_token_ids: torch.Tensor,  # [num_reqs], int32: what the target sampled
    query_start_loc: torch.Tensor,  # [num_reqs + 1], int32
    query_end_loc: torch.Tensor,  # [num_reqs], int32: each request's last accepted input
    padding_token_id: int,
    parallel_drafting_token_id: int,
    num_padding_slots_per_request: int,
    shift_input_ids: bool,
    total_draft_tokens: int,
) -> Expanded:
    """Lay out every request's accepted tokens, the sampled one, and slots for parallel drafts.

    Request r reads inputs [start, next_start) of which those after `query_end_loc[r]` were
    rejected. It writes, from `start + r * slots` on (one less per request with shift_input_ids):
    the accepted tokens (without the first one if shifted), the sampled token, `slots - 1` tokens
    for parallel drafting, and one padding token per rejected input. Positions count up from that
    of the first input; padding has 0. A hidden state of input i of the request belongs to its
    output i.

    Returns:
        Token ids, positions (int32), whether rejected, whether for parallel drafting (int8), all
        [total_draft_tokens]; where each request's sampled and parallel tokens are (int32,
        [num_reqs * slots]); the outputs of the inputs' hidden states (int32, [num_inputs], written
        with shift_input_ids only). What no request writes is 0.
    """
    slots, num_inputs = num_padding_slots_per_request, target_token_ids.shape[0]
    _check(
        total_draft_tokens,
        slots,
        num_inputs,
        target_token_ids=target_token_ids,
        target_positions=target_positions,
        next_token_ids=next_token_ids,
        query_start_loc=query_start_loc,
        query_end_loc=query_end_loc,
    )
    starts, ends = query_start_loc.tolist(), query_end_loc.tolist()
    num_reqs = len(ends)
    require(
        starts == sorted(starts) and starts[0] >= 0 and starts[-1] <= num_inputs,
        f"query_start_loc {starts} does not divide {num_inputs} inputs",
    )
    result = _outputs(target_token_ids, total_draft_tokens, num_reqs * slots, num_inputs)
    ids, positions, rejected, masked, new, mapping = result
    shift = int(shift_input_ids)
    for r in range(num_reqs):
        start, stop, end = starts[r], starts[r + 1], ends[r]
        num_valid = max(end - start + 1 - shift, 0)
        num_rejected = max(stop - end - 1, 0)
        first = start + r * (slots - shift)
        bonus, padding = first + num_valid, first + num_valid + slots
        last = padding + num_rejected
        require(
            start - 1 + shift <= end < stop,
            f"query_end_loc[{r}] is {end}, outside [{start - 1 + shift}, {stop})",
        )
        _check_request(r, start, stop, last, total_draft_tokens, num_inputs)
        ids[first:bonus] = target_token_ids[start + shift : start + shift + num_valid]
        ids[bonus] = next_token_ids[r]
        ids[bonus + 1 : padding] = parallel_drafting_token_id
        ids[padding:last] = padding_token_id
        steps = torch.arange(num_valid + slots, dtype=torch.int32, device=positions.device)
        positions[first:padding] = target_positions[start] + steps
        masked[bonus + 1 : padding] = 1
        rejected[padding:last] = 1
        new[r * slots : (r + 1) * slots] = bonus + steps[:slots]
        if shift_input_ids:
            count = stop - start
            mapping[start:stop] = first + torch.arange(
                count, dtype=torch.int32, device=mapping.device
            )
    return result


def _check_request(r: int, start: int, stop: int, last: int, total: int, num_inputs: int) -> None:
    """Refuse what the kernel would read or write beyond its buffers."""
    require(start < num_inputs, f"request {r} starts at {start}, beyond {num_inputs} inputs")
    require(last <= total, f"request {r} ends at {last}, beyond total_draft_tokens {total}")
    count = stop - start
    require(
        count + MAX_SLOTS <= MAX_TOKENS_PER_REQUEST,
        f"request {r} has {count} inputs; the kernel's buffers hold {MAX_TOKENS_PER_REQUEST}",
    )
