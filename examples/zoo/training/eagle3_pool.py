"""Batches that come again while an EAGLE-3 head is trained, each shown to the target once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from .llama import Llama


@dataclass(frozen=True)
class Seen:
    """A batch, and what the target makes of it; in bfloat16 what is large.

    Attributes:
        embeddings: of the token after each position, [batch, length, hidden].
        states: of inner layers, side by side, [batch, length, states * hidden].
        hidden: of the position after each, [batch, length, hidden].
        goal: the target's distribution over the draft's tokens there; some of it may be missing.
        choice: the target's likeliest token there, int64 [batch, length].
    """

    embeddings: torch.Tensor
    states: torch.Tensor
    hidden: torch.Tensor
    goal: torch.Tensor
    choice: torch.Tensor


class Pool:
    """Batches that come again and again, each shown to the target once.

    Args:
        target: the target.
        chosen: the draft's tokens.
        batches: as many as there are to be.
        layers: behind which of the target's layers the head reads its states.
        seed: of the order in which they come.
    """

    def __init__(
        self,
        target: Llama,
        chosen: torch.Tensor,  # [draft_vocab_size]
        batches: list[torch.Tensor],
        layers: Sequence[int],
        seed: int,
    ) -> None:
        self.target = target
        self.chosen = chosen
        self.batches = batches
        self.layers = layers
        self.known: dict[int, Seen] = {}
        self.generator = torch.Generator().manual_seed(seed)
        self.queue: list[int] = []

    def next(self) -> torch.Tensor:
        """Return the number of the next batch, int64 []."""
        if not self.queue:
            self.queue = torch.randperm(len(self.batches), generator=self.generator).tolist()
        return torch.tensor(self.queue.pop())

    @torch.no_grad()
    def seen(self, number: int) -> Seen:
        """Return a batch."""
        if number not in self.known:
            tokens = self.batches[number]
            hidden, states = self.target.with_states(tokens[:, :-1], self.layers)
            logits = self.target.logits(hidden[:, 1:])
            self.known[number] = Seen(
                embeddings=self.target.embed_tokens(tokens[:, 1:-1]),
                states=torch.cat(states, -1)[:, :-1],
                hidden=hidden[:, 1:],
                goal=logits.softmax(-1)[..., self.chosen].bfloat16(),
                choice=logits.argmax(-1),
            )
        return self.known[number]
