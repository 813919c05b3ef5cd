"""One draft step, as the runner hands it to the drafter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union

if TYPE_CHECKING:
    import torch
    from vllm.v1.attention.backend import CommonAttentionMetadata
    from vllm.v1.sample.metadata import SamplingMetadata
    from vllm.v1.spec_decode.metadata import SpecDecodeMetadata
    from vllm.v1.worker.gpu_input_batch import InputBatch

# Either a list of up to K token ids for each request, or int64 [num_reqs, K].
Drafts = Union[list[list[int]], "torch.Tensor"]


@dataclass(frozen=True, kw_only=True)
class DraftStep:
    """Everything that is known when drafts are made. The runner fills in all fields (``worker/``).

    Attributes:
        k: number of drafts for each request in this step, chosen by the scheduler.
        window: tokens in the window of the draft's attention if the scheduler chooses it; None for
            the whole text.
        sampled_token_ids: the target's tokens of this step. For methods that draft on the host, one
            list per request, which is empty during prefill. For methods with their own KV cache,
            int32 [num_reqs, K+1] on the device, padded with -1.
        tokens_on_host: returns the same tokens as one list per request, which is empty during
            prefill. If they are a tensor, the call waits for the device.
        batch: the runner's requests, with the tokens of each on the host.
        batch_has_sampled: whether these tokens include those of this step.
        sampling: sampling parameters of the requests.
        hidden_states: the target's last hidden states, [num_tokens, hidden_size].
        sample_hidden_states: those of the rows that were sampled from, [num_rows, hidden_size].
        aux_hidden_states: those of inner layers of the target, each [num_tokens, hidden_size]; None
            if no method asked for them.
        verification: tells which rows were drafts; None if the target verified no drafts.
        attention: attention metadata of the target's pass; None if nothing needs it.
        slot_mappings: vLLM's KV cache slots by layer; None with vllm-ascend.
        draft_by_stock: runs the stock runner's preparation of inputs for this step. It ends by
            calling the drafter's stock entry point (``propose`` with vLLM, ``_propose`` with
            vllm-ascend) and returns its result. For drafters that extend a stock proposer.
    """

    k: int
    window: int | None = None
    sampled_token_ids: list[list[int]] | torch.Tensor
    tokens_on_host: Callable[[], list[list[int]]]
    batch: InputBatch
    batch_has_sampled: bool
    sampling: SamplingMetadata
    hidden_states: torch.Tensor  # [num_tokens, hidden_size]
    sample_hidden_states: torch.Tensor  # [num_rows, hidden_size]
    aux_hidden_states: list[torch.Tensor] | None
    verification: SpecDecodeMetadata | None
    attention: CommonAttentionMetadata | None
    slot_mappings: Any
    draft_by_stock: Callable[[], Drafts]
