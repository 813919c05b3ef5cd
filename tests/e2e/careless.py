"""A proposer that breaks every rule it can without being refused."""

from __future__ import annotations

import random
from typing import Any

import torch

from examples.custom_proposer import RecentFollower

WRONG = (4096, 1 << 40, -1, -7)


class Careless(RecentFollower):
    """Right drafts, spoiled at random: too many, outside the vocabulary, as tensors."""

    def __init__(self, vllm_config: Any) -> None:
        super().__init__(vllm_config)
        self.num_drafts += 20
        self.random = random.Random(5)

    def follow(self, tokens: list[int]) -> Any:
        """Return more drafts than were asked for, some of them impossible."""
        drafts = super().follow(tokens)
        for index in range(len(drafts)):
            if self.random.random() < 0.2:
                drafts[index] = self.random.choice(WRONG)
        return torch.tensor(drafts) if self.random.random() < 0.5 else drafts
