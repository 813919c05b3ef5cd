"""Run closed-loop clients of an engine in this process: each awaits an answer, then asks again.

Only the time in which all clients await an answer is measured. At the end some have nothing left to
ask and the load shrinks, for longer if answers grow in uneven steps. Answers differ in length,
equally for every engine: if all had one length and each step gave one token, they would all end at
once, and all new prompts would be prefilled in one step, as in no other load.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vllm_ascend_spec.bench.local_engine import build_engine, forget_answers, scheduler_of
from vllm_ascend_spec.metrics.acceptance import AcceptanceCounts, added_up
from vllm_ascend_spec.metrics.rule import rule_from_engine

# Answers are up to SPREAD shorter or longer than asked for. From one to the next, the length moves
# by the golden ratio of the range, so that the lengths of any few answers are spread evenly.
SPREAD, GOLDEN = 0.25, (5**0.5 - 1) / 2


@dataclass(frozen=True)
class Phase:
    """A period of one load.

    Attributes:
        clients: number of clients.
        text: name of the prompts.
        temperature: 0 is greedy.
        requests: requests of all clients together; None for four per client, at least 32.
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
        """Name in a record."""
        return f"{self.clients} clients, {self.text}, T={self.temperature:g}"


@dataclass
class Run:
    """What an engine did in a phase while all clients waited for an answer.

    Attributes:
        tokens: tokens generated.
        seconds: seconds taken.
        trace: for each step: seconds since the start, tokens since the start, K or None.
        first_s: for each request, seconds from sending it to its first tokens.
        later: for each later step of a request: seconds since its previous step, tokens.
        acceptance: acceptance until the end of all answers; only if the engine counts it.
    """

    tokens: int = 0
    seconds: float = 0.0
    trace: list[tuple[float, int, int | None]] = field(default_factory=list)
    first_s: list[float] = field(default_factory=list)
    later: list[tuple[float, int]] = field(default_factory=list)
    acceptance: AcceptanceCounts = field(default_factory=AcceptanceCounts)

    @property
    def speed(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds


class ClosedLoopEngine:
    """One engine and the clients that it serves.

    Args:
        model: the target.
        spec: ``speculative_config``; None for no speculation.
        most_clients: largest number of clients in a phase.
        max_tokens: average tokens per answer.
        section: our options.
        compiled: whether to use torch.compile.
        counts: whether acceptance is counted.
        arguments: further arguments of ``LLM``.

    Attributes:
        rule: the acceptance rule; None if acceptance is not counted.
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
        """Collect the scheduler's statistics of each step.

        vLLM's counters are no use here: they are per process and cover only its newest engine.
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
        """Make the drafter forget the answers of earlier requests."""
        forget_answers(self.llm)

    @property
    def length(self) -> int | None:
        """The K that was chosen last; None if K is fixed."""
        chooser = getattr(scheduler_of(self.llm), "chooser", None)
        return None if chooser is None else chooser.choice.k

    def serve(self, phase: Phase, prompts: Sequence[str]) -> Run:
        """Let the clients of a phase ask until all requests are answered.

        Measuring stops at the first client that has nothing left to ask.

        Args:
            phase: the load.
            prompts: prompts, used in turn from the first one on.
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
    """Return the number of tokens in the answer to a request.

    Args:
        max_tokens: average tokens per answer.
        place: index of the request in its phase.
    """
    return max(1, round(max_tokens * (1 + SPREAD * (2 * (place * GOLDEN % 1) - 1))))


def longest_answer(max_tokens: int) -> int:
    """Return the largest number of tokens in an answer if the average is ``max_tokens``."""
    return round(max_tokens * (1 + SPREAD))
