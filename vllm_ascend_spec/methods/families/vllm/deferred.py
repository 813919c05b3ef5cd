"""What a draft has yet to read, where it drafts nothing for a while.

With K=0 a draft reads what the target read only so that its KV cache stays in step. Nobody looks
into that cache before drafts are wanted again, and the keys and values of a draft's first layer
come from each token alone. So the tokens of several steps are read in one pass: what a pass costs
whatever it reads is paid once, which on a small batch is most of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

# A pass is due after so many steps, or with so many tokens.
MOST_STEPS, MOST_TOKENS = 16, 256


class Unread(NamedTuple):
    """Tokens that a draft is to read, and where their keys and values go.

    Attributes:
        token_ids: int32 [num_tokens].
        positions: int64 [num_tokens].
        hidden: [num_tokens, hidden_size], states of the target; None if the draft reads none.
        slots: int64 [num_tokens].
    """

    token_ids: torch.Tensor
    positions: torch.Tensor
    hidden: torch.Tensor | None
    slots: torch.Tensor


class DeferredReads:
    """Tokens that wait for a pass of the draft.

    Args:
        read: lets the draft read tokens and write their keys and values, in any order.
    """

    def __init__(self, read: Callable[[Unread], None]) -> None:
        self._read = read
        self._waiting: list[Unread] = []
        self._slots: set[int] = set()

    def add(self, tokens: Unread) -> None:
        """Let tokens of a step wait, or read them where it is time.

        Args:
            tokens: may lie in buffers of the runner, which the next step writes over.
        """
        slots = {slot for slot in tokens.slots.tolist() if slot >= 0}
        # A place that is written again, behind a rejected draft or by another request: the last
        # one has to stay, and a pass may write in any order.
        if not self._slots.isdisjoint(slots):
            self.catch_up()
        self._slots |= slots
        self._waiting.append(Unread(*(None if part is None else part.clone() for part in tokens)))
        if len(self._waiting) >= MOST_STEPS or len(self._slots) >= MOST_TOKENS:
            self.catch_up()

    def catch_up(self) -> None:
        """Read everything that waits."""
        if not self._waiting:
            return
        token_ids, positions, hidden, slots = zip(*self._waiting, strict=True)
        self._waiting, self._slots = [], set()
        states = None if hidden[0] is None else torch.cat(hidden)
        self._read(Unread(torch.cat(token_ids), torch.cat(positions), states, torch.cat(slots)))
