"""The stages of an MLP speculator (Wertheimer et al., 2404.19124) as a plain module."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import nn

if TYPE_CHECKING:
    from vllm_ascend_spec.checkpoint.architectures.mlp_speculator import MlpSizes
    from vllm_ascend_spec.methods.heads.drafter import Picker

EPS = 1e-6


def normalized(
    x: torch.Tensor,  # [num_reqs, width]
) -> torch.Tensor:
    """Return ``x`` with a mean square of 1 in each row; computed in float32."""
    x32 = x.float()
    return (x32 * torch.rsqrt(x32.pow(2).mean(-1, keepdim=True) + EPS)).to(x.dtype)


class Norm(nn.Module):
    """Root mean square norm with a scale and a shift."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))
        self.bias = nn.Parameter(torch.empty(width))

    def forward(
        self,
        x: torch.Tensor,  # [num_reqs, width]
    ) -> torch.Tensor:
        """Return the norm of ``x``."""
        return normalized(x) * self.weight + self.bias


class MlpHeads(nn.Module):
    """Stages that each project a state and add the weighted embedding of the previous token.

    Parameters have the checkpoint's names; tied stages use the first stage's parameters.

    Args:
        sizes: sizes from the checkpoint's config.
    """

    def __init__(self, sizes: MlpSizes) -> None:
        super().__init__()
        self.sizes = sizes
        inner = sizes.inner
        makers = {
            "emb": lambda stage: nn.Embedding(sizes.vocab, inner),
            "proj": lambda stage: nn.Linear(inner if stage else sizes.hidden, inner, bias=False),
            "head": lambda stage: nn.Linear(inner, sizes.vocab, bias=False),
            "ln": lambda stage: Norm(inner),
        }
        for part, make in makers.items():
            owners = {sizes.owner(part, stage) for stage in range(sizes.num_drafts)}
            modules = {str(owner): make(owner) for owner in sorted(owners)}
            self.add_module(part, nn.ModuleDict(modules))
        # Weights as in fms-extras: each stage keeps 0.5 ** (0.5 / n_predict) of the state.
        kept = 0.5 ** (0.5 / sizes.num_drafts)
        self.token_weight = math.sqrt((1 - kept**2) * (inner / 2)) / kept

    def of(self, part: str, stage: int) -> nn.Module:
        """Return a part of a stage."""
        return self.get_submodule(f"{part}.{self.sizes.owner(part, stage)}")

    def forward(
        self,
        hidden: torch.Tensor,  # [num_reqs, hidden_size]
        last: torch.Tensor,  # [num_reqs]
        k: int,
        pick: Picker,
    ) -> list[torch.Tensor]:
        """Return ``k`` tensors, int64 [num_reqs], one for each draft position."""
        state = normalized(hidden) / math.sqrt(2) if self.sizes.scales_input else hidden
        drafts: list[torch.Tensor] = []
        for stage in range(k):
            token = self.of("emb", stage)(drafts[-1] if drafts else last)
            state = torch.add(self.of("proj", stage)(state), token, alpha=self.token_weight)
            state = F.gelu(self.of("ln", stage)(state))
            drafts.append(pick(self.of("head", stage)(state)))
        return drafts
