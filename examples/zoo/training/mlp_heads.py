"""The MLP speculator (Wertheimer et al., 2404.19124) with one set of weights for all stages."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from .shapes import VOCAB_SIZE

NORM_EPS = 1e-6


class MlpHeads(nn.Module):
    """A state that is carried from stage to stage, and the token before joins it.

    Args:
        hidden: width of the target.
        inner: width of the state.
        stages: how many tokens ahead.
        seed: of the weights.
    """

    def __init__(self, hidden: int, inner: int, stages: int, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.stages = stages
        self.emb = nn.Embedding(VOCAB_SIZE, inner)
        self.first = nn.Linear(hidden, inner, bias=False)
        self.later = nn.Linear(inner, inner, bias=False)
        self.head = nn.Linear(inner, VOCAB_SIZE, bias=False)
        self.scale = nn.Parameter(torch.ones(inner))
        self.shift = nn.Parameter(torch.zeros(inner))
        for module in (self.emb, self.first, self.later, self.head):
            nn.init.normal_(module.weight, std=inner**-0.5)
        kept = 0.5 ** (0.5 / stages)
        self.weight_of_token = math.sqrt((1 - kept**2) * inner / 2) / kept

    def forward(
        self,
        hidden: torch.Tensor,  # [batch, length, hidden]
        following: list[torch.Tensor],  # by stage, the token before its own, [batch, length]
    ) -> list[torch.Tensor]:
        """Return the logits of each stage, [batch, length, vocab_size]."""
        state = F.rms_norm(hidden.float(), hidden.shape[-1:], eps=NORM_EPS) / math.sqrt(2)
        logits = []
        for stage, tokens in enumerate(following):
            state = (self.later if stage else self.first)(state)
            state = (state + self.weight_of_token * self.emb(tokens)).float()
            state = F.rms_norm(state, state.shape[-1:], eps=NORM_EPS)
            state = F.gelu(state * self.scale + self.shift)
            logits.append(self.head(state))
        return logits

    def state_of_ibm(self) -> dict[str, torch.Tensor]:
        """Return the weights under the names of ibm-fms; those of tied stages stand there once."""
        return {
            "speculator.emb.0.weight": self.emb.weight,
            "speculator.proj.0.weight": self.first.weight,
            "speculator.proj.1.weight": self.later.weight,
            "speculator.head.0.weight": self.head.weight,
            "speculator.ln.0.weight": self.scale,
            "speculator.ln.0.bias": self.shift,
        }
