"""Many clients that ask a server for all kinds of things at once, for a given time."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import openai
import psutil

# More than the server runs at once, so that some wait.
CLIENTS = 12
# A bound beside the time; a client answers a few dozen a second at most.
MOST_REQUESTS = 1000
REGEX = r"[a-f]{3,8} = [0-9]{2,4}"


@dataclass(frozen=True)
class Reference:
    """A prompt and its greedy answer without speculation, end-of-text tokens ignored."""

    prompt: str
    token_ids: list[int]
    text: str


@dataclass(frozen=True)
class Answer:
    """What a request got."""

    token_ids: list[int]
    text: str
    finish_reason: str | None


@dataclass
class Soak:
    """Clients of one server.

    Attributes:
        url: root of the server.
        model: its model's name.
        references: what may be asked.
        seconds: no request starts later.
        done: requests by kind.
        problems: what was wrong with an answer, or why there was none.
        half_time: called once, when half of the time is over.
    """

    url: str
    model: str
    references: Sequence[Reference]
    seconds: float
    half_time: Callable[[], None]
    done: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Run all clients and wait for their last answers."""
        asyncio.run(self._run())

    async def _run(self) -> None:
        end = time.monotonic() + self.seconds
        async with openai.AsyncOpenAI(
            base_url=f"{self.url}/v1", api_key="EMPTY", max_retries=0, timeout=120
        ) as connection:
            clients = [self._client(connection, index, end) for index in range(CLIENTS)]
            await asyncio.gather(self._at_half_time(), *clients)

    async def _at_half_time(self) -> None:
        await asyncio.sleep(self.seconds / 2)
        await asyncio.to_thread(self.half_time)

    async def _client(self, connection: openai.AsyncOpenAI, index: int, end: float) -> None:
        chance = random.Random(index)
        for _ in range(MOST_REQUESTS):
            if time.monotonic() >= end:
                return
            kind = chance.choice(list(KINDS))
            request = Request(connection, self.model, chance, chance.choice(self.references))
            try:
                problem = await KINDS[kind](request)
            except openai.OpenAIError as error:
                problem = repr(error)
            self.done[kind] += 1
            if problem:
                self.problems.append(f"{kind}: {problem}"[:500])


@dataclass(frozen=True)
class Request:
    """One request of a client."""

    connection: openai.AsyncOpenAI
    model: str
    random: random.Random
    reference: Reference

    async def ask(self, leave_after: int | None = None, **options: Any) -> Answer:
        """Stream an answer; hang up after so many pieces."""
        extra = {"return_token_ids": True, "ignore_eos": True, **options.pop("extra_body", {})}
        stream = await self.connection.completions.create(
            model=self.model,
            prompt=self.reference.prompt,
            stream=True,
            **{"temperature": 0, "extra_body": extra, **options},
        )
        tokens: list[int] = []
        pieces: list[str] = []
        reason = None
        async for chunk in stream:
            for choice in chunk.choices:
                pieces.append(choice.text)
                tokens += (choice.model_extra or {}).get("token_ids") or []
                reason = choice.finish_reason or reason
            if leave_after is not None and len(pieces) >= leave_after:
                await stream.close()
                break
        return Answer(tokens, "".join(pieces), reason)


async def greedy(request: Request) -> str | None:
    """Any length: the beginning of the reference."""
    length = request.random.randint(1, len(request.reference.token_ids))
    answer = await request.ask(max_tokens=length)
    expected = request.reference.token_ids[:length]
    return None if answer.token_ids == expected else f"{answer} instead of {expected}"


async def sampled(request: Request) -> str | None:
    """Any parameters: as many tokens as were asked for."""
    chance = request.random
    length = chance.randint(1, 64)
    options: dict[str, Any] = {
        "temperature": chance.uniform(0.2, 1.5),
        "top_p": chance.choice([1.0, 0.9, 0.5]),
        "seed": chance.choice([None, chance.randrange(2**31)]),
        "presence_penalty": chance.choice([0.0, 0.0, 0.7]),
        "logprobs": chance.choice([None, None, 3]),
    }
    extra = {"top_k": chance.choice([0, 1, 20]), "min_p": chance.choice([0.0, 0.05])}
    answer = await request.ask(max_tokens=length, extra_body=extra, **options)
    found = len(answer.token_ids)
    return None if found == length else f"{found} tokens instead of {length}, {options}"


async def stopped(request: Request) -> str | None:
    """A stop string: the reference up to where it first stands."""
    text = request.reference.text
    start = request.random.randrange(len(text) - 3)
    stop = text[start : start + request.random.randint(1, 3)]
    answer = await request.ask(max_tokens=len(request.reference.token_ids), stop=[stop])
    expected = text[: text.find(stop)]
    right = answer.text == expected and answer.finish_reason == "stop"
    return None if right else f"{answer} instead of {expected!r} before {stop!r}"


async def structured(request: Request) -> str | None:
    """Structured output, greedy and sampled."""
    extra = {"structured_outputs": {"regex": REGEX}, "ignore_eos": False}
    temperature = request.random.choice([0.0, 1.0])
    answer = await request.ask(max_tokens=40, temperature=temperature, extra_body=extra)
    right = re.fullmatch(REGEX, answer.text) and answer.finish_reason == "stop"
    return None if right else f"{answer} does not match"


async def aborted(request: Request) -> str | None:
    """A client that leaves."""
    temperature = request.random.choice([0.0, 1.0])
    leave_after = request.random.randint(1, 12)
    await request.ask(leave_after, max_tokens=300, temperature=temperature)
    return None


KINDS: dict[str, Callable[[Request], Awaitable[str | None]]] = {
    kind.__name__: kind for kind in (greedy, sampled, stopped, structured, aborted)
}


def memory_of(pid: int) -> int:
    """Return the bytes of a process and of those that it has started."""
    process = psutil.Process(pid)
    return sum(p.memory_info().rss for p in (process, *process.children(recursive=True)))
