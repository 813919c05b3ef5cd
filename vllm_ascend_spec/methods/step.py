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

# By request: a list of any number of token ids up to K each, or int64 [num_reqs, K].
Drafts = Union[list[list[int]], "torch.Tensor"]


@dataclass(frozen=True, kw_only=True)
class DraftStep:
    """What is known when drafts are made. The runner fills all of it (``worker/``).

    Attributes:
        num_drafts: K of this step, by the scheduler; not more than the engine's K.
        sampled_token_ids: the target's tokens of this step. A list by request, empty where a prompt
            goes on, for methods that draft on the host. For methods with a KV cache of their own
            int32 [num_reqs, K+1] on the device, padded by -1.
        tokens_on_host: returns the same as a list by request, empty where a prompt goes on. Where
            they are a tensor it waits for the device.
        batch: the runner's requests; the host's tokens of each are there.
        batch_has_sampled: whether those of this step are among them.
        sampling: how the requests are sampled.
        hidden_states: the target's last hidden states, [num_tokens, hidden_size].
        sample_hidden_states: those of the rows that were sampled from, [num_rows, hidden_size].
        aux_hidden_states: those of inner layers of the target, each [num_tokens, hidden_size]; None
            where no method asked for them.
        verification: which rows were drafts; None where the step before had none.
        attention: attention metadata of the target's pass; None where nothing needs it.
        slot_mappings: slots in the KV cache by layer, vLLM's; None with vllm-ascend.
        draft_by_stock: calls the stock runner's own preparation of inputs for this step, which ends
            in the stock entry point of the drafter (``propose`` with vLLM, ``_propose`` with
            vllm-ascend) and returns what that returns. For drafters that extend a stock proposer.
    """

    num_drafts: int
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
