"""A Llama decoder for training, with Hugging Face's parameter names."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import nn

from .shapes import NORM_EPS, ROPE_THETA, VOCAB_SIZE, Shape

Rotation = tuple[torch.Tensor, torch.Tensor]


def rotary_table(length: int, head_dim: int) -> Rotation:
    """Return (cosines, signed sines), float32 [length, head_dim] each."""
    frequencies = 1.0 / ROPE_THETA ** (torch.arange(0, head_dim, 2).float() / head_dim)
    angles = torch.outer(torch.arange(length).float(), frequencies)
    cosines, sines = angles.cos(), angles.sin()
    return torch.cat([cosines, cosines], -1), torch.cat([-sines, sines], -1)


def rotate(x: torch.Tensor, rotation: Rotation) -> torch.Tensor:
    """Apply rotary positions to ``x`` [batch, heads, length, head_dim]."""
    cosines, sines = rotation
    half = x.shape[-1] // 2
    swapped = torch.cat([x[..., half:], x[..., :half]], -1)
    return x * cosines.to(x.dtype) + swapped * sines.to(x.dtype)


class Norm(nn.Module):
    """RMS norm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, x.shape[-1:], self.weight.to(x.dtype), NORM_EPS)


class Attention(nn.Module):
    """Grouped-query attention, split so that EAGLE can unroll over it.

    Args:
        shape: of the decoder.
        inputs: width of what is projected to q, k and v, if not the decoder's.
    """

    def __init__(self, shape: Shape, inputs: int | None = None) -> None:
        super().__init__()
        self.shape = shape
        inputs, kv_width = inputs or shape.hidden, shape.kv_heads * shape.head_dim
        self.q_proj = nn.Linear(inputs, shape.heads * shape.head_dim, bias=False)
        self.k_proj = nn.Linear(inputs, kv_width, bias=False)
        self.v_proj = nn.Linear(inputs, kv_width, bias=False)
        self.o_proj = nn.Linear(shape.heads * shape.head_dim, shape.hidden, bias=False)

    def qkv(
        self, x: torch.Tensor, rotation: Rotation
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Project ``x`` [batch, length, hidden] to q, k, v [batch, heads, length, head_dim]."""
        batch, length, _ = x.shape
        q, k, v = (
            projection(x).view(batch, length, -1, self.shape.head_dim).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = rotate(q, rotation), rotate(k, rotation)
        groups = self.shape.heads // self.shape.kv_heads
        return q, k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)

    def project_out(self, mixed: torch.Tensor) -> torch.Tensor:
        """Join the heads of ``mixed`` [batch, heads, length, head_dim] and project."""
        batch, _, length, _ = mixed.shape
        return self.o_proj(mixed.transpose(1, 2).reshape(batch, length, -1))

    def forward(self, x: torch.Tensor, rotation: Rotation) -> torch.Tensor:
        q, k, v = self.qkv(x, rotation)
        return self.project_out(F.scaled_dot_product_attention(q, k, v, is_causal=True))


class MLP(nn.Module):
    """SiLU-gated MLP."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden, shape.intermediate, bias=False)
        self.up_proj = nn.Linear(shape.hidden, shape.intermediate, bias=False)
        self.down_proj = nn.Linear(shape.intermediate, shape.hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """Pre-norm decoder layer."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.input_layernorm = Norm(shape.hidden)
        self.post_attention_layernorm = Norm(shape.hidden)
        self.self_attn = Attention(shape)
        self.mlp = MLP(shape)

    def forward(self, x: torch.Tensor, rotation: Rotation) -> torch.Tensor:
        x = x + self.self_attn(self.input_layernorm(x), rotation)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    """Decoder with tied embeddings."""

    def __init__(self, shape: Shape, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.shape = shape
        self.embed_tokens = nn.Embedding(VOCAB_SIZE, shape.hidden)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = Norm(shape.hidden)
        init_weights(self, shape.layers)

    def forward(self, token_ids: torch.Tensor) -> torch.Tensor:
        """Return the normed hidden states [batch, length, hidden] of ``token_ids``."""
        return self.with_states(token_ids, ())[0]

    def with_states(
        self, token_ids: torch.Tensor, layers: Sequence[int]
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Return the normed hidden states of ``token_ids``, and the residual stream in places.

        Args:
            token_ids: int64 [batch, length].
            layers: behind how many layers, ascending.

        Returns:
            The hidden states [batch, length, hidden], and as much for each of ``layers``.
        """
        x = self.embed_tokens(token_ids)
        stream = [x]
        rotation = rotary_table(token_ids.shape[1], self.shape.head_dim)
        for layer in self.layers:
            stream.append(x := layer(x, rotation))
        return self.norm(x), [stream[index] for index in layers]

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return logits [..., VOCAB_SIZE] of ``hidden`` [..., hidden]."""
        return F.linear(hidden, self.embed_tokens.weight)


def init_weights(module: nn.Module, depth: int = 1) -> None:
    """GPT-2's initialisation: residual projections shrink with depth."""
    for name, parameter in module.named_parameters():
        if parameter.ndim > 1:
            residual = name.endswith(("o_proj.weight", "down_proj.weight"))
            scale = math.sqrt(2 * depth) if residual else 1.0
            nn.init.normal_(parameter, std=0.02 / scale)
