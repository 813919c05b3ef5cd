"""Medusa's heads (Cai et al., 2401.10774), under the names that vLLM gives their tensors."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    """Residual layers; all zeros at first, so that a head begins as the target's own output."""

    def __init__(self, hidden: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(hidden, hidden, bias=False) for _ in range(layers))
        for layer in self.layers:
            nn.init.zeros_(layer.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``x`` [..., hidden] moved on to what this head predicts."""
        for layer in self.layers:
            x = x + F.silu(layer(x))
        return x


class MedusaHeads(nn.Module):
    """One block for each token ahead, and one output layer for all of them.

    Args:
        heads: how many tokens ahead.
        layers: residual layers of each.
        output: the target's output layer, which ours begins as, [vocab_size, hidden].
    """

    def __init__(self, heads: int, layers: int, output: torch.Tensor) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(output.shape[1], layers) for _ in range(heads))
        self.lm_head = nn.Linear(output.shape[1], output.shape[0], bias=False)
        self.lm_head.weight.data.copy_(output)

    def forward(
        self,
        hidden: torch.Tensor,  # [batch, length, hidden]
        following: list[torch.Tensor],  # by head, the token before its own, [batch, length]
    ) -> list[torch.Tensor]:
        """Return the logits of each head, [batch, length, vocab_size]; it sees no token."""
        return [self.lm_head(block(hidden)) for block in self.blocks]
