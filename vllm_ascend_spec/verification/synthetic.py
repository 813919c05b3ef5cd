"""Synthetic acceptance: drafts accepted at given rates, to measure speed. Not lossless."""

from __future__ import annotations

from typing import Any

import torch
from vllm.v1.spec_decode.metadata import SpecDecodeMetadata
from vllm.v1.spec_decode.utils import unconditional_to_conditional_rates

from vllm_ascend_spec.ops.layout import make_grid


class SyntheticAcceptance:
    """Decides how many drafts of each request are accepted, whatever the logits say.

    Args:
        rates: probability that the draft at each position is accepted, unconditional and
            non-increasing (``synthetic_acceptance_rates``).
    """

    def __init__(self, rates: list[float]) -> None:
        conditional = unconditional_to_conditional_rates(rates)
        self.rates = torch.tensor(conditional, dtype=torch.float64)  # [max_draft_len]

    @classmethod
    def from_config(cls, spec_config: Any) -> SyntheticAcceptance | None:
        """Return one if ``rejection_sample_method`` is ``synthetic``, else None."""
        if spec_config is None or spec_config.rejection_sample_method != "synthetic":
            return None
        return cls(spec_config.synthetic_acceptance_rates)

    def count_accepted(
        self,
        metadata: SpecDecodeMetadata,
        accept_uniform: torch.Tensor,  # [num_drafts]
    ) -> torch.Tensor:
        """Return the number of accepted drafts, int64 [num_reqs]. A draft of -1 never is."""
        grid = _grid(metadata)
        self.rates = self.rates.to(accept_uniform.device)
        rates = self.rates[: metadata.max_spec_len]
        accepted = accept_uniform[grid.draft_rows[:, :-1]] < rates
        accepted &= grid.drafts[:, :-1] >= 0
        return accepted.cumprod(dim=1).sum(dim=1)


def rows_after(metadata: SpecDecodeMetadata, num_accepted: torch.Tensor) -> torch.Tensor:
    """Return the row of the token after the accepted drafts, int64 [num_reqs]."""
    return _grid(metadata).rows.gather(1, num_accepted[:, None])[:, 0]


def join(
    metadata: SpecDecodeMetadata,
    num_accepted: torch.Tensor,  # [num_reqs]
    last: torch.Tensor,  # [num_reqs]
) -> torch.Tensor:
    """Return accepted drafts and last tokens, int32 [num_reqs, max_draft_len + 1], padded -1."""
    grid, count = _grid(metadata), num_accepted[:, None]
    tokens = torch.where(grid.offsets < count, grid.drafts, -1)
    return tokens.scatter_(1, count, last[:, None].long()).int()


def _grid(metadata: SpecDecodeMetadata) -> Any:
    return make_grid(metadata.draft_token_ids, metadata.cu_num_draft_tokens, metadata.max_spec_len)
