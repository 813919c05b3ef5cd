"""The DFlash head (Chen et al., 2602.06036): fills the masks of a block, all at once.

Keys and values of the text come from the target's states; the block, a token and the masks behind
it, sees them and all of itself. Names are those of published heads, with Qwen3's layers.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from .llama import MLP, Attention, Llama, Norm, Rotation, init_weights, rotate
from .shapes import Shape


class HeadNormAttention(Attention):
    """Attention whose queries and keys are normalized by head, as Qwen3's are."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.q_norm = Norm(shape.head_dim)
        self.k_norm = Norm(shape.head_dim)

    def _heads(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        return x.view(batch, length, -1, self.shape.head_dim).transpose(1, 2)

    def query(
        self,
        x: torch.Tensor,  # [batch, length, hidden]
        rotation: Rotation,
    ) -> torch.Tensor:
        """Return the queries of ``x``, [batch, heads, length, head_dim]."""
        return rotate(self.q_norm(self._heads(self.q_proj(x))), rotation)

    def key_value(
        self,
        x: torch.Tensor,  # [batch, length, hidden]
        rotation: Rotation,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the keys and values of ``x``, [batch, heads, length, head_dim] each."""
        keys = rotate(self.k_norm(self._heads(self.k_proj(x))), rotation)
        groups = self.shape.heads // self.shape.kv_heads
        values = self._heads(self.v_proj(x))
        return keys.repeat_interleave(groups, 1), values.repeat_interleave(groups, 1)


class DFlashLayer(nn.Module):
    """Pre-norm decoder layer of a block."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.input_layernorm = Norm(shape.hidden)
        self.post_attention_layernorm = Norm(shape.hidden)
        self.self_attn = HeadNormAttention(shape)
        self.mlp = MLP(shape)


class DFlashHead(nn.Module):
    """Decoder layers over blocks, beside keys and values of fc(states of the target's layers).

    Args:
        shape: of its layers.
        target: whose last norm it starts from.
        num_states: how many of the target's layers it reads; the last is where it starts from.
        seed: of its first weights.
    """

    def __init__(self, shape: Shape, target: Llama, num_states: int, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        width = shape.hidden
        self.fc = nn.Linear(num_states * width, width, bias=False)
        self.hidden_norm = Norm(width)
        self.layers = nn.ModuleList(DFlashLayer(shape) for _ in range(shape.layers))
        self.norm = Norm(width)
        init_weights(self, shape.layers)
        with torch.no_grad():
            self.fc.weight[:, -width:] += torch.eye(width)
            self.norm.weight.copy_(target.norm.weight)

    def forward(
        self,
        states: torch.Tensor,  # [batch, length, num_states * hidden]
        blocks: torch.Tensor,  # [batch, num_rows, hidden]
        rotations: tuple[Rotation, Rotation],
        visible: torch.Tensor,  # [num_rows, length + num_rows]
    ) -> torch.Tensor:
        """Return the normed hidden states of the blocks' rows, [batch, num_rows, hidden].

        Args:
            states: the target's, of the whole text.
            blocks: embeddings of the tokens and masks of all blocks.
            rotations: rotary tables of the text's positions and of the blocks'.
            visible: which tokens of the text, and which rows, each row attends to.
        """
        context, x = self.hidden_norm(self.fc(states)), blocks
        for layer in self.layers:
            attention, normed = layer.self_attn, layer.input_layernorm(x)
            text = attention.key_value(context, rotations[0])
            own = attention.key_value(normed, rotations[1])
            keys, values = (torch.cat(pair, 2) for pair in zip(text, own, strict=True))
            query = attention.query(normed, rotations[1])
            mixed = F.scaled_dot_product_attention(query, keys, values, attn_mask=visible)
            x = x + attention.project_out(mixed)
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        return self.norm(x)


def visible_to(
    length: int,
    anchors: torch.Tensor,  # [num_blocks]
    counts: torch.Tensor,  # [num_blocks]
    rows: int,
) -> torch.Tensor:
    """Return what the rows of blocks attend to, bool [num_rows, length + num_rows].

    A block sees the text before its token, and its own first ``counts`` rows. What is behind these
    has no loss.

    Args:
        length: tokens of the text.
        anchors: int64, position of each block's token.
        counts: int64, number of rows of each block that are there.
        rows: rows of each block.
    """
    first = anchors.repeat_interleave(rows)
    text = torch.arange(length)[None, :] < first[:, None]
    block = torch.arange(len(anchors)).repeat_interleave(rows)
    place = torch.arange(rows).repeat(len(anchors))
    is_there = place < counts.repeat_interleave(rows)
    return torch.cat([text, (block[:, None] == block[None, :]) & is_there[None, :]], 1)
