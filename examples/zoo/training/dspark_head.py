"""The DSpark head: a DFlash head whose drafts also read the draft before them.

The block is run once. A Markov head then adds to the logits of each row what the token before makes
likely, as a product of two narrow matrices, and a confidence head estimates how likely the draft is
accepted. Names are those of published heads (speculators 0.9, models/dspark).
"""

from __future__ import annotations

import torch
from torch import nn

from .dflash_head import DFlashHead
from .llama import Llama
from .shapes import DSPARK_RANK, VOCAB_SIZE, Shape


class MarkovHead(nn.Module):
    """Adds to the logits what the token before makes likely.

    Args:
        rank: width of the two matrices.
    """

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.markov_w1 = nn.Embedding(VOCAB_SIZE, rank)
        self.markov_w2 = nn.Linear(rank, VOCAB_SIZE, bias=False)
        nn.init.normal_(self.markov_w1.weight, std=0.02)
        nn.init.normal_(self.markov_w2.weight, std=0.02)


class ConfidenceHead(nn.Module):
    """Estimates from a row, and the token before, whether its draft is accepted.

    Args:
        width: of what it reads.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.proj = nn.Linear(width, 1)


class DSparkHead(DFlashHead):
    """A DFlash head with a Markov head and a confidence head.

    Args:
        shape: of its layers.
        target: whose last norm it starts from.
        num_states: how many of the target's layers it reads; the last is where it starts from.
        seed: of its first weights.
    """

    def __init__(self, shape: Shape, target: Llama, num_states: int, seed: int) -> None:
        super().__init__(shape, target, num_states, seed)
        self.markov_head = MarkovHead(DSPARK_RANK)
        self.confidence_head = ConfidenceHead(shape.hidden + DSPARK_RANK)

    def after(
        self,
        hidden: torch.Tensor,  # [batch, num_rows, hidden]
        before: torch.Tensor,  # [batch, num_rows]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what to add to the logits, and the confidence before its sigmoid.

        Args:
            hidden: states of the rows.
            before: int64, the token before each row's draft.

        Returns:
            [batch, num_rows, vocabulary] and [batch, num_rows].
        """
        embedded = self.markov_head.markov_w1(before)
        read = torch.cat([hidden, embedded.to(hidden.dtype)], -1)
        return self.markov_head.markov_w2(embedded), self.confidence_head.proj(read).squeeze(-1)
