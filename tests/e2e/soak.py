"""Many clients that ask a server for all kinds of things at once, for a given time."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import openai

from tests.e2e.soak_kinds import KINDS, Reference, Request

# More than the server runs at once, so that some wait.
CLIENTS = 16
# A bound beside the time; a client answers a few dozen a second at most.
MOST_REQUESTS = 20_000
# The first ones wait while PyTorch compiles the sampler.
TIMEOUT_S = 600.0
MOST_LETTERS = 500


def seconds_of(usual: float) -> float:
    """Return how long a soak takes: ``SOAK_SECONDS`` sets it, for a longer one by hand."""
    return float(os.environ.get("SOAK_SECONDS", usual))


@dataclass
class Soak:
    """Clients of one server. A seed draws what each asks for; only how far it gets differs.

    Attributes:
        url: root of the server.
        model: its model's name.
        references: what may be asked.
        num_drafts: the most drafts that a request may ask for; None without speculation.
        done: requests by kind.
        problems: what was wrong with an answer, or why there was none.
    """

    url: str
    model: str
    references: Sequence[Reference]
    num_drafts: int | None
    done: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def run(self, seconds: float, seed: int = 0) -> None:
        """Run all clients and wait for their last answers.

        Args:
            seconds: no request starts later.
            seed: another one asks for other things.
        """
        asyncio.run(self._run(time.monotonic() + seconds, seed))

    async def _run(self, end: float, seed: int) -> None:
        async with openai.AsyncOpenAI(
            base_url=f"{self.url}/v1", api_key="EMPTY", max_retries=0, timeout=TIMEOUT_S
        ) as connection:
            chances = [random.Random(f"{seed}/{index}") for index in range(CLIENTS)]
            await asyncio.gather(*(self._client(connection, chance, end) for chance in chances))

    async def _client(
        self, connection: openai.AsyncOpenAI, chance: random.Random, end: float
    ) -> None:
        for _ in range(MOST_REQUESTS):
            if time.monotonic() >= end:
                return
            kind = chance.choice(list(KINDS))
            reference = chance.choice(self.references)
            request = Request(connection, self.model, chance, reference, self.num_drafts)
            try:
                problem = await KINDS[kind](request)
            except openai.OpenAIError as error:
                problem = repr(error)
            self.done[kind] += 1
            if problem:
                self.problems.append(f"{kind}: {problem}"[:MOST_LETTERS])
