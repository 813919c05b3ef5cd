"""Defer the updates of a draft's KV cache while nothing is drafted.

With K=0 a draft reads the target's tokens only to keep its KV cache up to date. Nothing reads that
cache until drafts are wanted again, and the keys and values of a draft's first layer depend on
each token alone. So one pass reads the tokens of several steps and pays the fixed cost of a pass
once, which is most of the cost for a small batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

# A pass runs after this many steps, or once this many tokens wait.
MOST_STEPS, MOST_TOKENS = 16, 256


class PendingTokens(NamedTuple):
    """Tokens that a draft has yet to read, and their KV cache slots.

    Attributes:
        token_ids: int32 [num_tokens].
        positions: int64 [num_tokens].
        hidden: [num_tokens, hidden_size], the target's states; None if the draft reads none.
        slots: int64 [num_tokens].
    """

    token_ids: torch.Tensor
    positions: torch.Tensor
    hidden: torch.Tensor | None
    slots: torch.Tensor


class DeferredKVWrites:
    """Tokens that wait for a pass of the draft.

    Args:
        read: makes the draft read tokens and write their keys and values, in any order.
    """

    def __init__(self, read: Callable[[PendingTokens], None]) -> None:
        self._read = read
        self._waiting: list[PendingTokens] = []
        self._slots: set[int] = set()

    def add(self, tokens: PendingTokens) -> None:
        """Queue the tokens of a step; read the queue if it is full.

        Args:
            tokens: the tokens; they may be in runner buffers, which the next step overwrites.
        """
        slots = {slot for slot in tokens.slots.tolist() if slot >= 0}
        # A slot may be written again, after a rejected draft or by another request. The last write
        # has to win, but a pass may write in any order.
        if not self._slots.isdisjoint(slots):
            self.catch_up()
        self._slots |= slots
        self._waiting.append(
            PendingTokens(*(None if part is None else part.clone() for part in tokens))
        )
        if len(self._waiting) >= MOST_STEPS or len(self._slots) >= MOST_TOKENS:
            self.catch_up()

    def catch_up(self) -> None:
        """Read all queued tokens."""
        if not self._waiting:
            return
        token_ids, positions, hidden, slots = zip(*self._waiting, strict=True)
        self._waiting, self._slots = [], set()
        states = None if hidden[0] is None else torch.cat(hidden)
        self._read(
            PendingTokens(torch.cat(token_ids), torch.cat(positions), states, torch.cat(slots))
        )
