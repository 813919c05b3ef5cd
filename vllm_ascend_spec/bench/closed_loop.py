"""Clients that each wait for an answer before they ask again, of an engine in this process.

What counts is the time in which all of them wait for one: at the end those that have nothing left
to ask would make another load of it, for longer where answers come in uneven steps. Answers differ
in length, alike for every engine: of one length they would all end at once where each step gives
one token, and all prompts be read in one step, as those of no other load are.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vllm_ascend_spec.bench.timed_engine import build_engine
from vllm_ascend_spec.bench.turns import forget_answers, scheduler_of
from vllm_ascend_spec.metrics.acceptance import Acceptance, added_up
from vllm_ascend_spec.metrics.rule import rule_from_engine

# Answers are that much shorter or longer than what is asked for, the golden ratio of the way on
# from one to the next, so that any few of them are spread evenly.
SPREAD, GOLDEN = 0.25, (5**0.5 - 1) / 2


@dataclass(frozen=True)
class Phase:
    """A while of one load.

    Attributes:
        clients: how many there are.
        text: name of the prompts.
        temperature: 0 is greedy.
        requests: of all clients together; None for four of each, and 32 at least.
    """

    clients: int
    text: str
    temperature: float
    requests: int | None = None

    @property
    def num_requests(self) -> int:
        """Requests of all clients together."""
        return self.requests or max(32, 4 * self.clients)

    @property
    def name(self) -> str:
        """What it is called in a record."""
        return f"{self.clients} clients, {self.text}, T={self.temperature:g}"


@dataclass
class Run:
    """What an engine did in a phase while all clients waited for an answer.

    Attributes:
        tokens: that it wrote.
        seconds: that it took.
        trace: of its steps: seconds since the start, tokens since the start, K of the step or None.
        first_s: of each request, seconds from when it was asked to its first tokens.
        later: of each step of a request after these: seconds since the one before, tokens.
        acceptance: of drafts, to the end of all answers; filled where the engine counts.
    """

    tokens: int = 0
    seconds: float = 0.0
    trace: list[tuple[float, int, int | None]] = field(default_factory=list)
    first_s: list[float] = field(default_factory=list)
    later: list[tuple[float, int]] = field(default_factory=list)
    acceptance: Acceptance = field(default_factory=Acceptance)

    @property
    def speed(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds


class ClosedLoopEngine:
    """One engine and the clients that it serves.

    Args:
        model: the target.
        spec: ``speculative_config``; None for none.
        most_clients: of any phase.
        max_tokens: of an answer on average.
        section: our options.
        compiled: with torch.compile.
        counts: whether acceptance is counted.
        arguments: further ones of ``LLM``.

    Attributes:
        rule: by which drafts are accepted; None where that is not counted.
    """

    def __init__(
        self,
        model: str,
        spec: Mapping[str, Any] | None,
        *,
        most_clients: int,
        max_tokens: int,
        section: Mapping[str, Any] | None = None,
        compiled: bool = False,
        counts: bool = False,
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        self.llm = build_engine(
            model,
            spec,
            most_requests=most_clients,
            section=section,
            compiled=compiled,
            counts=counts,
            others=arguments,
        )
        self.max_tokens = max_tokens
        self.rule = rule_from_engine(self.llm.get_metrics()) if counts else None
        self._names = itertools.count()
        self._drafted: list[Any] = []
        if counts:
            self._count()

    def _count(self) -> None:
        """Keep what the scheduler says of each step.

        vLLM's counters would not do: they are the process's, and of its newest engine.
        """
        client = self.llm.llm_engine.engine_core
        get_output = client.get_output

        def counted() -> Any:
            output = get_output()
            stats = getattr(output.scheduler_stats, "spec_decoding_stats", None)
            if stats is not None:
                self._drafted.append(stats)
            return output

        client.get_output = counted

    def forget(self) -> None:
        """Let no drafter know answers of earlier requests."""
        forget_answers(self.llm)

    @property
    def length(self) -> int | None:
        """K that was chosen last; None where it is fixed."""
        chooser = getattr(scheduler_of(self.llm), "chooser", None)
        return None if chooser is None else chooser.choice.drafts

    def serve(self, phase: Phase, prompts: Sequence[str]) -> Run:
        """Let the clients of a phase ask until all requests are answered.

        What is noted ends with the first client that has nothing left to ask.

        Args:
            phase: the load.
            prompts: taken in turn, from the first one on.
        """
        from vllm import SamplingParams

        core, run = self.llm.llm_engine, Run()
        left = list(range(phase.num_requests))[::-1]
        self._drafted.clear()
        started = time.perf_counter()
        written: dict[str, int] = {}
        last: dict[str, float] = {}

        def ask() -> bool:
            """Send the next request, if there is one left."""
            if not left:
                return False
            place, name = left.pop(), str(next(self._names))
            parameters = SamplingParams(
                temperature=phase.temperature,
                max_tokens=answer_length(self.max_tokens, place),
                ignore_eos=True,
            )
            last[name] = time.perf_counter()
            core.add_request(name, prompts[place % len(prompts)], parameters)
            return True

        for _ in range(phase.clients):
            ask()
        all_wait = True
        while core.has_unfinished_requests():
            outputs, measured = core.step(), all_wait
            now = time.perf_counter()
            for output in outputs:
                name, tokens = output.request_id, len(output.outputs[0].token_ids)
                seconds, last[name] = now - last[name], now
                if measured and name in written:
                    run.later.append((seconds, tokens - written[name]))
                elif measured:
                    run.first_s.append(seconds)
                written[name] = tokens
                if output.finished:
                    all_wait = ask() and all_wait
            if measured:
                run.tokens, run.seconds = sum(written.values()), time.perf_counter() - started
                run.trace.append((run.seconds, run.tokens, self.length))
        run.acceptance = added_up(self._drafted)
        return run


def answer_length(max_tokens: int, place: int) -> int:
    """Return how many tokens the answer to the request at a place has.

    Args:
        max_tokens: of an answer on average.
        place: of the request in its phase.
    """
    return max(1, round(max_tokens * (1 + SPREAD * (2 * (place * GOLDEN % 1) - 1))))


def longest_answer(max_tokens: int) -> int:
    """Return the most tokens of an answer, where one has ``max_tokens`` on average."""
    return round(max_tokens * (1 + SPREAD))
