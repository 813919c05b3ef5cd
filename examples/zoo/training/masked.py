"""Train a model to draft several tokens in one pass, from masks behind the text (2504.18583)."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from .llama import Layer, Llama, Rotation, rotary_table

# The byte 0xff, which is in no UTF-8 text: a token that stands nowhere else.
MASK_ID = 188
LATER_WEIGHT = 0.8


class MaskedRows:
    """The rows of a pass over a text, and over a run of masks behind some of its tokens.

    The masks of one run see the text up to its token, and the masks before them.

    Args:
        length: tokens of the text.
        anchors: int64 [num_runs], the tokens that have a run of masks behind them.
        masks: how many masks each.

    Attributes:
        positions: int64 [num_rows], the text's first, then run by run.
        visible: bool [num_rows, num_rows], what each row attends to.
    """

    def __init__(self, length: int, anchors: torch.Tensor, masks: int) -> None:
        text, ahead = torch.arange(length), torch.arange(1, masks + 1)
        self.positions = torch.cat([text, (anchors[:, None] + ahead).flatten()])
        # Of each row: the last token of the text that it sees, its run, and its place in that.
        last = torch.cat([text, anchors.repeat_interleave(masks)])
        run = torch.cat([torch.full((length,), -1), torch.arange(len(anchors))]).repeat_interleave(
            torch.cat([torch.ones(length), torch.full((len(anchors),), masks)]).long()
        )
        place = torch.cat([torch.zeros(length).long(), ahead.repeat(len(anchors))])
        of_text = (run < 0)[None, :] & (text_index(length, len(run))[None, :] <= last[:, None])
        of_run = (run[None, :] == run[:, None]) & (run[None, :] >= 0)
        self.visible = of_text | (of_run & (place[None, :] <= place[:, None]))


def text_index(length: int, num_rows: int) -> torch.Tensor:
    """Return the position of each row in the text; for other rows a number beyond it."""
    return torch.arange(num_rows).clamp(max=length)


def run_layer(
    layer: Layer,
    x: torch.Tensor,  # [batch, num_rows, hidden]
    rotation: Rotation,
    visible: torch.Tensor,  # [num_rows, num_rows]
) -> torch.Tensor:
    """Run a layer in which each row attends to what is visible to it."""
    q, k, v = layer.self_attn.qkv(layer.input_layernorm(x), rotation)
    mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=visible)
    x = x + layer.self_attn.project_out(mixed)
    return x + layer.mlp(layer.post_attention_layernorm(x))


def masked_hidden(
    model: Llama,
    tokens: torch.Tensor,  # [batch, length]
    rows: MaskedRows,
) -> torch.Tensor:
    """Return the normed hidden states of all rows, [batch, num_rows, hidden]."""
    count = len(rows.positions) - tokens.shape[1]
    ids = torch.cat([tokens, tokens.new_full((tokens.shape[0], count), MASK_ID)], 1)
    x = model.embed_tokens(ids)
    # Masks of a run behind the last token of all are beyond the text.
    table = rotary_table(tokens.shape[1] + count, model.shape.head_dim)
    rotation = (table[0][rows.positions], table[1][rows.positions])
    for layer in model.layers:
        x = run_layer(layer, x, rotation, rows.visible)
    return model.norm(x)
