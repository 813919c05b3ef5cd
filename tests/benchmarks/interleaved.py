"""Run an engine in turn with others, and time its parts.

The interpreter of another environment, with another vLLM, runs this file as a script
(``peer_engine.py``). So it imports nothing of this project, and repeats a few lines of
``vllm_ascend_spec/bench/local_engine.py``. The script reads commands, one per line, and answers
each with a line of JSON.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

# Commands of the script.
GENERATE, WATCH = "generate", "watch"


@dataclass(frozen=True, kw_only=True)
class OfflineLoad:
    """The requests to send to an engine.

    Attributes:
        prompts: texts.
        max_tokens: tokens per answer.
        batch: number of requests at a time.
        temperature: 0 is greedy; otherwise each request has a seed.
    """

    prompts: Sequence[str]
    max_tokens: int
    batch: int
    temperature: float = 0.0


class Clock:
    """Adds up the time spent in methods of one engine."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    def watch(self, owner: Any, method: str, part: str) -> None:
        """Time every call of ``owner.method`` as ``part``."""
        stock: Callable[..., Any] = getattr(owner, method)

        def timed(*args: Any, **kwargs: Any) -> Any:
            started = time.perf_counter()
            try:
                return stock(*args, **kwargs)
            finally:
                self.seconds[part] += time.perf_counter() - started

        setattr(owner, method, timed)


class PassFigures:
    """The measurements of an engine.

    Attributes:
        steps, tokens: totals over all recorded rounds.
        tokens_per_s, ms_per_step: values of each recorded round.
        clock: time spent in the engine's parts.
    """

    def __init__(self) -> None:
        self.steps = self.tokens = 0
        self.tokens_per_s: list[float] = []
        self.ms_per_step: list[float] = []
        self.clock = Clock()

    def ms_of(self, part: str) -> float:
        """Return milliseconds per step of a part."""
        return 1e3 * self.clock.seconds[part] / self.steps

    @property
    def tokens_per_engine_step(self) -> float:
        """Tokens of all requests per step of the engine.

        Counted here, because vLLM's counters cover only the newest engine of a process.
        """
        return self.tokens / self.steps


class InterleavedEngine(PassFigures):
    """An engine of this process.

    Args:
        llm: vLLM's ``LLM``.
        load: the requests to send.
        parts: name of a part -> (object, method), for :meth:`instrument`. The object is
            ``scheduler`` or ``runner`` or one below it (``runner.drafter``).
    """

    def __init__(
        self, llm: Any, load: OfflineLoad, parts: Mapping[str, tuple[str, str]] | None = None
    ) -> None:
        from vllm import SamplingParams

        super().__init__()
        self.llm = llm
        self.load = load
        self.parts = parts or {}
        self.sampling = [
            SamplingParams(
                temperature=load.temperature,
                max_tokens=load.max_tokens,
                ignore_eos=True,
                seed=index if load.temperature else None,
            )
            for index in range(load.batch)
        ]

    @property
    def runner(self) -> Any:
        """The model runner of the engine."""
        return self.llm.llm_engine.model_executor.driver_worker.worker.model_runner

    @property
    def scheduler(self) -> Any:
        """The scheduler of the engine."""
        return self.llm.llm_engine.engine_core.engine_core.scheduler

    def instrument(self) -> None:
        """Start to time the parts."""
        tops = {"runner": self.runner, "scheduler": self.scheduler}
        for part, (path, method) in self.parts.items():
            top, *names = path.split(".")
            owner = tops[top]
            for name in names:
                owner = getattr(owner, name, None)
            if owner is not None and hasattr(owner, method):
                self.clock.watch(owner, method, part)

    def generate(self, *, record: bool) -> None:
        """Send all prompts, a batch at a time.

        Args:
            record: whether to record the figures.
        """
        # Suffix trees would otherwise know the answers of the previous pass.
        forget = getattr(getattr(self.runner, "drafter", None), "forget_answers", None)
        if forget is not None:
            forget()
        core = self.llm.llm_engine
        started, tokens, steps = time.perf_counter(), 0, 0
        for first in range(0, len(self.load.prompts), self.load.batch):
            batch = self.load.prompts[first : first + self.load.batch]
            for index, prompt in enumerate(batch):
                core.add_request(f"{first}-{index}-{started}", prompt, self.sampling[index])
            while core.has_unfinished_requests():
                for output in core.step():
                    if output.finished:
                        tokens += len(output.outputs[0].token_ids)
                steps += 1
        seconds = time.perf_counter() - started
        if record:
            self.tokens += tokens
            self.steps += steps
            self.tokens_per_s.append(tokens / seconds)
            self.ms_per_step.append(1e3 * seconds / steps)

    def start(self) -> None:
        """Warm up with one pass, then start to time the parts."""
        self.warm_up()
        self.instrument()
        self.clock.seconds.clear()

    def warm_up(self) -> None:
        """Answer all prompts once, and spare later passes the collections of what is there."""
        self.generate(record=False)
        gc.collect()
        gc.freeze()

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as JSON values, for another process."""
        return {
            "steps": self.steps,
            "tokens": self.tokens,
            "tokens_per_s": self.tokens_per_s,
            "ms_per_step": self.ms_per_step,
            "seconds": dict(self.clock.seconds),
        }


def follow(commands: TextIO, answers: TextIO) -> None:
    """Build the engine that the first line describes, then follow the commands after it.

    Args:
        commands: the first line is JSON with ``arguments`` of ``LLM``, ``load`` and ``parts``; each
            further line is a command.
        answers: receives the figures after each line.
    """
    from vllm import LLM

    asked = json.loads(commands.readline())
    engine = InterleavedEngine(
        LLM(**asked["arguments"]), OfflineLoad(**asked["load"]), asked["parts"]
    )
    engine.warm_up()
    while True:
        answers.write(json.dumps(engine.as_dict()) + "\n")
        answers.flush()
        command = commands.readline().strip()
        if not command:
            return
        if command == WATCH:
            engine.instrument()
            engine.clock.seconds.clear()
        elif command == GENERATE:
            engine.generate(record=True)


if __name__ == "__main__":
    # Prints of libraries go to stderr, so that stdout has only the answers.
    with os.fdopen(os.dup(1), "w") as stdout:
        os.dup2(2, 1)
        follow(sys.stdin, stdout)
