"""A layer for multi-token prediction (2412.19437), unrolled in training as vLLM runs it."""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import nn

from .eagle_head import KeyValue, unrolled_attention
from .llama import MLP, Norm, Rotation, init_weights
from .shapes import Shape


class SplitAttention(Protocol):
    """Attention in parts, so that a draft's own loop can be unrolled over it."""

    def qkv(
        self, x: torch.Tensor, rotation: Rotation
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Project ``x`` [batch, length, hidden] to q, k, v [batch, heads, length, …]."""

    def project_out(self, mixed: torch.Tensor) -> torch.Tensor:
        """Join the heads of ``mixed`` [batch, heads, length, …] and project."""


class MtpLayer(nn.Module):
    """One decoder layer over the embedding of the next token and the hidden state, both normed.

    Args:
        shape: of the decoder.
        attention: the layer's; a module.
        final_norm: weight of the target's last norm, where the layer's own starts, [hidden].
        seed: of the weights.
        masks_first: whether the embedding of the first position is zero, as vLLM has it for
            DeepSeek and MiMo.
        mlp: what stands behind the attention; one gated MLP if not given.
    """

    def __init__(
        self,
        shape: Shape,
        attention: SplitAttention,
        final_norm: torch.Tensor,
        seed: int,
        *,
        masks_first: bool = True,
        mlp: nn.Module | None = None,
    ) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.masks_first = masks_first
        self.embedding_norm, self.state_norm = Norm(shape.hidden), Norm(shape.hidden)
        self.fuse = nn.Linear(2 * shape.hidden, shape.hidden, bias=False)
        self.input_layernorm = Norm(shape.hidden)
        self.self_attn = attention
        self.post_attention_layernorm = Norm(shape.hidden)
        self.mlp = mlp or MLP(shape)
        self.norm = Norm(shape.hidden)
        init_weights(self)
        self.norm.weight.data.copy_(final_norm)

    def step(
        self,
        embeddings: torch.Tensor,  # [batch, length, hidden]
        states: torch.Tensor,  # [batch, length, hidden]
        rotation: Rotation,
        steps: list[KeyValue],
    ) -> torch.Tensor:
        """Run one draft step and append its keys and values to ``steps``.

        Args:
            embeddings: of the token after each position.
            states: the target's hidden states (step 1) or the layer's own.
            rotation: rotary table of ``length`` positions.
            steps: keys and values of the steps before.

        Returns:
            The normed hidden states, which the output layer and the next step read,
            [batch, length, hidden].
        """
        is_first = self.masks_first and not steps  # a later step is never at position 0
        masked = F.pad(embeddings[:, 1:], (0, 0, 1, 0)) if is_first else embeddings
        x = self.fuse(torch.cat([self.embedding_norm(masked), self.state_norm(states)], -1))
        q, k, v = self.self_attn.qkv(self.input_layernorm(x), rotation)
        steps.append((k, v))
        if len(steps) == 1:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            mixed = unrolled_attention(q, steps)
        x = x + self.self_attn.project_out(mixed)
        return self.norm(x + self.mlp(self.post_attention_layernorm(x)))
