"""Medusa's heads (Cai et al., 2401.10774) as a plain module."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import nn

if TYPE_CHECKING:
    from vllm_ascend_spec.checkpoint.architectures.medusa import MedusaSizes
    from vllm_ascend_spec.methods.heads.drafter import Picker


class Block(nn.Module):
    """The residual layers of one head.

    Args:
        width: width of the target's hidden state.
        biases: for each layer, whether it has a bias.
    """

    def __init__(self, width: int, biases: list[bool]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width, bias=bias) for bias in biases)

    def forward(
        self,
        x: torch.Tensor,  # [num_reqs, width]
    ) -> torch.Tensor:
        """Return the input of the output layer, of the same shape."""
        for layer in self.layers:
            x = x + F.silu(layer(x))
        return x


class MedusaHeads(nn.Module):
    """One block for each token ahead; each has its own output layer, or all share one.

    Parameters have vLLM's names (vllm/model_executor/models/medusa.py:Medusa).

    Args:
        sizes: sizes from the checkpoint's config.
        biases: names of the biases in the checkpoint.
        rows: number of tokens in the checkpoint's output layers: the whole vocabulary, or only the
            tokens that can be drafted.
    """

    token_map: torch.Tensor | None

    def __init__(self, sizes: MedusaSizes, biases: Collection[str], rows: int) -> None:
        super().__init__()
        self.vocab, self.scale, self.drafted = sizes.vocab, sizes.scale, sizes.drafted
        layers = range(sizes.layers)
        self.blocks = nn.ModuleList(
            Block(sizes.hidden, [f"blocks.{head}.layers.{i}.bias" in biases for i in layers])
            for head in range(sizes.num_drafts)
        )
        if sizes.shares_output:
            self.lm_head = nn.Linear(sizes.hidden, rows, bias=False)
        else:
            self.lm_heads = nn.ModuleList(
                nn.Linear(sizes.hidden, rows, bias=False) for _ in self.blocks
            )
        is_part = sizes.drafted < sizes.vocab
        table = torch.empty(sizes.drafted, dtype=torch.int64) if is_part else None
        self.register_buffer("token_map", table)

    def leave_out_other_tokens(self) -> None:
        """Keep only the output rows of tokens that can be drafted; call after loading weights."""
        for output in self.outputs():
            if self.token_map is not None and output.weight.shape[0] > self.drafted:
                output.weight = nn.Parameter(output.weight[self.token_map], requires_grad=False)

    def outputs(self) -> list[nn.Linear]:
        """Return the output layers: one for all blocks, or one for each block."""
        return [self.lm_head] if hasattr(self, "lm_head") else list(self.lm_heads)

    def forward(
        self,
        hidden: torch.Tensor,  # [num_reqs, width]
        last: torch.Tensor,  # [num_reqs], not used
        k: int,
        pick: Picker,
    ) -> list[torch.Tensor]:
        """Return ``k`` tensors, int64 [num_reqs], one for each draft position."""
        outputs = self.outputs()
        drafts = []
        for head, block in enumerate(self.blocks[:k]):
            logits = outputs[head % len(outputs)](block(hidden))
            drafts.append(self._pick(logits, pick))
        return drafts

    def _pick(
        self,
        logits: torch.Tensor,  # [num_reqs, drafted]
        pick: Picker,
    ) -> torch.Tensor:
        if self.token_map is None:
            return pick(logits if self.scale == 1 else logits * self.scale)
        if not pick.draws:
            return self.token_map[pick(logits)]
        whole = logits.new_full((logits.shape[0], self.vocab), float("-inf"))
        whole[:, self.token_map] = logits * self.scale
        return pick(whole)
