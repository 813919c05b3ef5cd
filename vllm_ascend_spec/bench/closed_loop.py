"""Clients that each wait for an answer before they ask again, of an engine in this process."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vllm_ascend_spec.bench.timed_engine import build_engine


@dataclass(frozen=True)
class Phase:
    """A while of one load.

    Attributes:
        clients: how many there are.
        text: name of the prompts.
        temperature: 0 is greedy.
        requests: of all clients together; None for four of each, and 8 at least.
    """

    clients: int
    text: str
    temperature: float
    requests: int | None = None

    @property
    def num_requests(self) -> int:
        """Requests of all clients together."""
        return self.requests or max(8, 4 * self.clients)

    @property
    def name(self) -> str:
        """What it is called in a record."""
        return f"{self.clients} clients, {self.text}, T={self.temperature:g}"


@dataclass
class Run:
    """What an engine did in a phase.

    Attributes:
        tokens: that it wrote.
        seconds: that it took.
        trace: of its steps: seconds since the start, tokens since the start, K of the step or None.
    """

    tokens: int = 0
    seconds: float = 0.0
    trace: list[tuple[float, int, int | None]] = field(default_factory=list)

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
        max_tokens: of each answer.
        section: our options.
        compiled: with torch.compile.
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
    ) -> None:
        self.llm = build_engine(
            model, spec, most_requests=most_clients, section=section, compiled=compiled
        )
        self.max_tokens = max_tokens
        self._names = itertools.count()

    @property
    def length(self) -> int | None:
        """K that was chosen last; None where it is fixed."""
        chooser = getattr(self.llm.llm_engine.engine_core.engine_core.scheduler, "chooser", None)
        return None if chooser is None else chooser.choice.drafts

    def serve(self, phase: Phase, prompts: Sequence[str]) -> Run:
        """Let the clients of a phase ask until all requests are answered.

        Args:
            phase: the load.
            prompts: taken in turn, from the first one on.
        """
        from vllm import SamplingParams

        core, run = self.llm.llm_engine, Run()
        parameters = SamplingParams(
            temperature=phase.temperature, max_tokens=self.max_tokens, ignore_eos=True
        )
        left = [prompts[place % len(prompts)] for place in range(phase.num_requests)][::-1]
        started = time.perf_counter()
        written: dict[str, int] = {}

        def ask() -> None:
            if left:
                core.add_request(str(next(self._names)), left.pop(), parameters)

        for _ in range(phase.clients):
            ask()
        while core.has_unfinished_requests():
            for output in core.step():
                written[output.request_id] = len(output.outputs[0].token_ids)
                if output.finished:
                    ask()
            run.tokens = sum(written.values())
            run.trace.append((time.perf_counter() - started, run.tokens, self.length))
        run.seconds = time.perf_counter() - started
        return run
