"""Engines in this process that take turns, and clocks on their parts."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vllm_ascend_spec.config.schema import SECTION
from vllm_ascend_spec.metrics.rule import rule_from_engine

# Before vLLM is imported, which reads them once.
ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "OMP_NUM_THREADS": "1",
}


def prepare_environment() -> None:
    """Set what engines of one process need, where the environment does not say otherwise."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def build_engine(
    model: str,
    spec: Mapping[str, Any] | None,
    *,
    most_requests: int,
    section: Mapping[str, Any] | None,
    compiled: bool,
    counts: bool = False,
) -> Any:
    """Return an ``LLM`` as the benchmarks of one process compare them.

    Args:
        model: the target.
        spec: ``speculative_config``; None for none.
        most_requests: of a batch.
        section: our options.
        compiled: with torch.compile.
        counts: whether vLLM's metrics are kept.
    """
    from vllm import LLM

    return LLM(
        model=model,
        dtype="float32",
        max_model_len=512,
        max_num_seqs=most_requests,
        enforce_eager=not compiled,
        disable_log_stats=not counts,
        enable_prefix_caching=False,
        speculative_config=None if spec is None else dict(spec),
        additional_config={SECTION: dict(section)} if section else {},
        seed=0,
    )


@dataclass(frozen=True, kw_only=True)
class Load:
    """What an engine is asked.

    Attributes:
        prompts: texts.
        max_tokens: of each answer.
        batch: how many at a time.
        temperature: 0 is greedy; with any other each request has a seed.
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


class TimedEngine:
    """One engine and its figures.

    Args:
        model: the target.
        load: what it will be asked.
        spec: ``speculative_config``; None for none.
        draft_loop: which draft loop; None for the default.
        compiled: with torch.compile.
        parts: name of a part -> (object below the runner, method), for :meth:`instrument`.
    """

    def __init__(
        self,
        model: str,
        load: Load,
        spec: Mapping[str, Any] | None,
        *,
        parts: Mapping[str, tuple[str, str]],
        draft_loop: str | None = None,
        compiled: bool = False,
    ) -> None:
        from vllm import SamplingParams

        self.llm = build_engine(
            model,
            spec,
            most_requests=max(load.batch, 1),
            section={"draft_loop": draft_loop} if draft_loop else None,
            compiled=compiled,
            counts=True,
        )
        self.rule = rule_from_engine(self.llm.get_metrics())
        self.load = load
        self.parts = parts
        self.steps = 0
        self.clock = Clock()
        self.tokens = 0
        self.tokens_per_s: list[float] = []
        self.ms_per_step: list[float] = []
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

    def instrument(self) -> None:
        """Start to watch the parts."""
        for part, (path, method) in self.parts.items():
            owner = self.runner
            for name in filter(None, path.split(".")):
                owner = getattr(owner, name, None)
            if owner is not None and hasattr(owner, method):
                self.clock.watch(owner, method, part)

    def generate(self, *, record: bool) -> None:
        """Send all prompts, a batch at a time.

        Args:
            record: whether the figures count.
        """
        # Else suffix trees would know the answers from the round before.
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
        """Warm up with one pass, then watch the parts."""
        self.generate(record=False)
        self.instrument()
        self.clock.seconds.clear()

    def ms_of(self, part: str) -> float:
        """Return milliseconds per step of a part."""
        return 1e3 * self.clock.seconds[part] / self.steps

    @property
    def tokens_per_engine_step(self) -> float:
        """Tokens of all requests per step of the engine.

        Counted here: of several engines in a process, vLLM's counters know the newest only.
        """
        return self.tokens / self.steps
