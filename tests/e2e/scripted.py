"""A proposer that knows the answers, and is wrong where it is told to be."""

from __future__ import annotations

import random
from typing import Any, ClassVar

from examples.custom_proposer import RecentFollower


class Scripted(RecentFollower):
    """Drafts any number of tokens of which any number are right, as often as any other."""

    # Prompt and answer of each request, as token ids; set before the engine starts.
    texts: ClassVar[list[list[int]]] = []

    def __init__(self, vllm_config: Any) -> None:
        super().__init__(vllm_config)
        self.random = random.Random(5)
        self.ends = [(d, right) for d in range(self.num_drafts + 1) for right in range(d + 1)]

    def follow(self, tokens: list[int]) -> list[int]:
        """Return drafts after ``tokens``."""
        count, right = self.random.choice(self.ends)
        # What is accepted may pass the end of an answer.
        text = next((t for t in self.texts if t[: len(tokens)] == tokens[: len(t)]), None)
        assert text is not None, "an answer is another one"
        drafts = text[len(tokens) : len(tokens) + count]
        return [
            token if place < right else (token + 1) % 4096 for place, token in enumerate(drafts)
        ]
