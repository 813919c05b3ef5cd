"""The EAGLE-3 head (Li et al., 2503.01840), unrolled in training as vLLM runs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import nn

from .eagle_head import KeyValue, unrolled_attention
from .llama import MLP, Attention, Norm, Rotation, init_weights
from .shapes import Shape

LAYER = ("hidden_norm", "input_layernorm", "post_attention_layernorm", "self_attn", "mlp")


class Target(Protocol):
    """What a head is trained for; a module."""

    embed_tokens: nn.Embedding
    norm: nn.Module

    def with_states(
        self, tokens: torch.Tensor, layers: Sequence[int]
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Return the normed states [batch, length, hidden], and those behind ``layers``."""

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return logits [..., vocab_size] of ``hidden`` [..., hidden]."""


class Eagle3Head(nn.Module):
    """One decoder layer over [embedding of the next token, fc(states of the target's layers)].

    Args:
        shape: of its layer.
        target: whose embeddings and output layer it starts from.
        tokens: int64 [draft_vocab_size], the target's tokens that it can draft, ascending.
        num_states: how many of the target's layers it reads; the last is where it starts from.
        seed: of its first weights.
    """

    def __init__(
        self,
        shape: Shape,
        target: Target,
        tokens: torch.Tensor,  # [draft_vocab_size]
        num_states: int,
        seed: int,
    ) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.tokens = tokens
        width = shape.hidden
        self.fc = nn.Linear(num_states * width, width, bias=False)
        self.hidden_norm = Norm(width)
        self.input_layernorm = Norm(width)
        self.post_attention_layernorm = Norm(width)
        self.self_attn = Attention(shape, inputs=2 * width)
        self.mlp = MLP(shape)
        self.norm = Norm(width)
        self.lm_head = nn.Linear(width, len(tokens), bias=False)
        init_weights(self)
        with torch.no_grad():
            self.fc.weight[:, -width:] += torch.eye(width)
            self.lm_head.weight.copy_(target.embed_tokens.weight[tokens])
            self.norm.weight.copy_(target.norm.weight)

    def step(
        self,
        embeddings: torch.Tensor,  # [batch, length, hidden]
        features: torch.Tensor,  # [batch, length, hidden]
        rotation: Rotation,
        steps: list[KeyValue],
    ) -> torch.Tensor:
        """Run one draft step and append its keys and values to ``steps``.

        Args:
            embeddings: of the token after each position.
            features: ``fc`` of the target's states (step 1) or what the step before returned.
            rotation: rotary table of ``length`` positions.
            steps: keys and values of the steps before.

        Returns:
            The residual stream behind the layer, [batch, length, hidden]: the next step's features,
            and the input of :meth:`logits`.
        """

        def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            steps.append((k, v))
            if len(steps) == 1:
                return F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return unrolled_attention(q, steps)

        x = torch.cat([self.input_layernorm(embeddings), self.hidden_norm(features)], -1)
        mixed = attend(*self.self_attn.qkv(x, rotation))
        x = features + self.self_attn.project_out(mixed)
        return x + self.mlp(self.post_attention_layernorm(x))

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return logits [..., draft_vocab_size] of ``hidden`` [..., hidden]."""
        return self.lm_head(self.norm(hidden))

    def checkpoint(self) -> dict[str, torch.Tensor]:
        """Return the weights under the names of published EAGLE-3 heads."""
        return {
            (f"midlayer.{name}" if name.startswith(LAYER) else name): value
            for name, value in self.state_dict().items()
        }

    def load_checkpoint(self, state: dict[str, torch.Tensor]) -> None:
        """Load weights from a checkpoint; the maps of the vocabulary are left out."""
        own = {
            name.removeprefix("midlayer."): value.float()
            for name, value in state.items()
            if value.is_floating_point()
        }
        self.load_state_dict(own)
