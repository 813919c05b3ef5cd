"""The EAGLE head (Li et al., 2401.15077), unrolled in training as vLLM runs it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from .llama import MLP, Attention, Norm, Rotation, init_weights
from .shapes import Shape

KeyValue = tuple[torch.Tensor, torch.Tensor]


def shift_right(x: torch.Tensor, distance: int) -> torch.Tensor:
    """Move ``x`` [batch, heads, length, head_dim] ``distance`` positions later, zero-filled."""
    return F.pad(x, (0, 0, distance, 0))[:, :, : x.shape[2]]


def unrolled_attention(q: torch.Tensor, steps: list[KeyValue]) -> torch.Tensor:
    """Attend as the draft does at step ``len(steps)`` of its loop.

    vLLM's first draft step writes the keys of every position from the target's hidden states;
    each later step adds one key made from the draft's own. Step s therefore sees first-step keys
    up to its start, then its own chain: the keys of steps 2..s, each on one sub-diagonal.

    Args:
        q: queries of this step, [batch, heads, length, head_dim].
        steps: keys and values of all steps so far, this one last; same shape as ``q`` each.

    Returns:
        The mixed values, [batch, heads, length, head_dim].
    """
    length, head_dim = q.shape[2], q.shape[3]
    depth = len(steps)
    first_keys, first_values = steps[0]
    scores = (q @ first_keys.transpose(-1, -2)).float()
    position = torch.arange(length)
    visible = position[:, None] - position[None] >= depth - 1
    scores = scores.masked_fill(~visible, float("-inf"))
    chain = []
    for index in range(1, depth):
        keys = shift_right(steps[index][0], depth - 1 - index)
        chain.append((q * keys).sum(-1, keepdim=True).float())
    weights = (torch.cat([scores, *chain], -1) * head_dim**-0.5).softmax(-1).to(q.dtype)
    mixed = weights[..., :length] @ first_values
    for offset, index in enumerate(range(1, depth)):
        values = shift_right(steps[index][1], depth - 1 - index)
        mixed = mixed + weights[..., length + offset : length + offset + 1] * values
    return mixed


class EagleHead(nn.Module):
    """One decoder layer over fc([embedding of the next token, hidden state])."""

    def __init__(self, shape: Shape, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.fc = nn.Linear(2 * shape.hidden, shape.hidden, bias=False)
        self.self_attn = Attention(shape)
        self.mlp = MLP(shape)
        self.post_attention_layernorm = Norm(shape.hidden)
        init_weights(self)

    def step(
        self,
        embeddings: torch.Tensor,
        hidden: torch.Tensor,
        rotation: Rotation,
        steps: list[KeyValue],
    ) -> torch.Tensor:
        """Run one draft step and append its keys and values to ``steps``.

        Args:
            embeddings: embedding of the token after each position, [batch, length, hidden].
            hidden: the target's hidden states (step 1) or the draft's own, same shape.
            rotation: rotary table of ``length`` positions.
            steps: keys and values of the steps before.

        Returns:
            The draft's hidden states, [batch, length, hidden].
        """
        x = self.fc(torch.cat([embeddings, hidden], -1))
        q, k, v = self.self_attn.qkv(x, rotation)
        steps.append((k, v))
        if len(steps) == 1:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            mixed = unrolled_attention(q, steps)
        x = x + self.self_attn.project_out(mixed)
        return x + self.mlp(self.post_attention_layernorm(x))
