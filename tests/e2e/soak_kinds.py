"""What the clients of a soak ask for, and what is a right answer to each."""

from __future__ import annotations

import random
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import openai

from vllm_ascend_spec.upstream.ranges import vllm_is

REGEX = r"[a-f]{3,8} = [0-9]{2,4}"
# Each with a word of its answer.
BAD: dict[str, dict[str, Any]] = {
    "maximum context length": {"prompt": "x = 1\n" * 2000},
    "temperature": {"temperature": -1},
    "top_p": {"top_p": 2},
    "999999": {"logit_bias": {"999999": 1}},
    "regex": {"extra_body": {"structured_outputs": {"regex": "[a-"}}},
    "valid: 'off'": {"extra_body": {"vllm_xargs": {"speculation": 1000}}},
}
# A sampled request with a seed.
DRAWN: dict[str, Any] = {"temperature": 0.8, "top_p": 0.95, "seed": 11}


@dataclass(frozen=True)
class Reference:
    """A prompt and its answers without speculation, end-of-text tokens ignored.

    Attributes:
        prompt: the prompt.
        token_ids: tokens of the greedy answer.
        text: its text.
        drawn: tokens of the answer to :data:`DRAWN`.
    """

    prompt: str
    token_ids: list[int]
    text: str
    drawn: list[int]


@dataclass(frozen=True)
class Answer:
    """What a request got."""

    token_ids: list[int]
    text: str
    finish_reason: str | None
    num_logprobs: int


@dataclass(frozen=True)
class Request:
    """One request of a client.

    Attributes:
        connection: to the server.
        model: its name there.
        random: of the client.
        reference: a prompt, and what its answer is.
        num_drafts: the most drafts that it may ask for; None without speculation.
    """

    connection: openai.AsyncOpenAI
    model: str
    random: random.Random
    reference: Reference
    num_drafts: int | None

    async def ask(self, leave_after: int | None = None, **options: Any) -> Answer:
        """Stream an answer; hang up after so many pieces."""
        extra = {"return_token_ids": True, "ignore_eos": True, **options.pop("extra_body", {})}
        stream = await self.connection.completions.create(
            model=self.model,
            stream=True,
            **{"prompt": self.reference.prompt, "temperature": 0, "extra_body": extra, **options},
        )
        tokens: list[int] = []
        pieces: list[str] = []
        reason, num_logprobs = None, 0
        async for chunk in stream:
            for choice in chunk.choices:
                pieces.append(choice.text)
                tokens += (choice.model_extra or {}).get("token_ids") or []
                num_logprobs += len((choice.logprobs and choice.logprobs.tokens) or [])
                reason = choice.finish_reason or reason
            if leave_after is not None and len(pieces) >= leave_after:
                await stream.close()
                break
        return Answer(tokens, "".join(pieces), reason, num_logprobs)

    def another_prompt(self) -> str:
        """Return a prompt that nobody has asked yet: no cache knows its end."""
        text = self.reference.prompt
        end = self.random.randint(len(text) // 4, len(text))
        return f"{text[:end]}\nx{self.random.randrange(10**9)} = "


async def greedy(request: Request) -> str | None:
    """Any length: the beginning of the reference."""
    length = request.random.randint(1, len(request.reference.token_ids))
    answer = await request.ask(max_tokens=length, logprobs=request.random.choice([None, None, 2]))
    expected = request.reference.token_ids[:length]
    return None if answer.token_ids == expected else f"{answer} instead of {expected}"


async def limited(request: Request) -> str | None:
    """Fewer drafts than others: the reference all the same."""
    most = request.random.choice(["off", *range((request.num_drafts or -1) + 1)])
    extra = {"vllm_xargs": {"speculation": most}}
    answer = await request.ask(max_tokens=32, extra_body=extra)
    expected = request.reference.token_ids[:32]
    return None if answer.token_ids == expected else f"{answer} instead of {expected}, {most=}"


async def drawn(request: Request) -> str | None:
    """With a seed, and any limit on drafts: the beginning of the reference."""
    length = request.random.randint(1, len(request.reference.drawn))
    most = request.random.choice([None, "off", 1])
    extra = (
        {} if most is None or request.num_drafts is None else {"vllm_xargs": {"speculation": most}}
    )
    answer = await request.ask(max_tokens=length, extra_body=extra, **DRAWN)
    expected = request.reference.drawn[:length]
    return None if answer.token_ids == expected else f"{answer} instead of {expected}, {most=}"


async def sampled(request: Request) -> str | None:
    """Any parameters: as many tokens as were asked for, with as many logprobs."""
    chance = request.random
    length = chance.randint(1, 64)
    options: dict[str, Any] = {
        "prompt": request.another_prompt(),
        "temperature": chance.uniform(0.2, 1.5),
        "top_p": chance.choice([1.0, 0.9, 0.5]),
        "seed": chance.choice([None, chance.randrange(2**31)]),
        "presence_penalty": chance.choice([0.0, 0.0, 0.7]),
        "frequency_penalty": chance.choice([0.0, 0.0, -0.3]),
        "logprobs": chance.choice([None, None, 3]),
    }
    extra = {
        "top_k": chance.choice([0, 1, 20]),
        "min_p": chance.choice([0.0, 0.05]),
        "repetition_penalty": chance.choice([1.0, 1.0, 1.2]),
    }
    answer = await request.ask(max_tokens=length, extra_body=extra, **options)
    found = len(answer.token_ids)
    wanted_logprobs = length if options["logprobs"] else 0
    right = found == length and answer.num_logprobs == wanted_logprobs
    told = f"{found} tokens and {answer.num_logprobs} logprobs instead of {length}"
    return None if right else f"{told}, {options}"


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


async def refused(request: Request) -> str | None:
    """A bad request: status 400, with what is wrong. Of a stream vLLM finds out too late for it."""
    word = request.random.choice(list(BAD))
    wanted = {"prompt": request.reference.prompt, "max_tokens": 8, **BAD[word]}
    try:
        await request.connection.completions.create(model=request.model, **wanted)
    except openai.BadRequestError as error:
        return None if word in str(error) else f"{error} does not name {word!r}"
    return f"no error about {word!r}"


# vLLM 0.23 closes the connection behind a refused request, and others of the client may be on it.
REFUSED = () if vllm_is("<0.30") else (refused,)
KINDS: dict[str, Callable[[Request], Awaitable[str | None]]] = {
    kind.__name__: kind
    for kind in (greedy, limited, drawn, sampled, stopped, structured, aborted, *REFUSED)
}
