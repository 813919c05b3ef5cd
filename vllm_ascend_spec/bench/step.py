"""``bench step``: where the time of an engine step goes, for up to three configurations in turn.

No speculation, speculation with vLLM's own draft loop (before), and with ours (after); methods
without a draft model have no loop, so there are two. All engines live in this process and take
turns, so the machine's drift hits them alike.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vllm_ascend_spec.bench import provenance, redaction
from vllm_ascend_spec.bench.serve import say
from vllm_ascend_spec.bench.stats import Summary, paired_ratio
from vllm_ascend_spec.config.preflight import check_method, with_underscores
from vllm_ascend_spec.config.schema import SECTION
from vllm_ascend_spec.metrics.rule import note_on_rule, rule_from_engine

BEFORE, AFTER, NONE = "stock draft loop", "fused draft loop", "none"
WITHOUT_LOOP = "speculation"
# Part -> (object below the runner, method). Parts inside another are indented in the table.
PARTS: dict[str, tuple[str, str]] = {
    "prepare inputs": ("", "_prepare_inputs"),
    "attention metadata": ("", "_build_attention_metadata"),
    "target forward": ("", "_model_forward"),
    "target logits": ("model", "compute_logits"),
    "sample or verify": ("", "_sample"),
    "bookkeeping": ("", "_bookkeeping_sync"),
    "draft, all": ("", "propose_draft_token_ids"),
    "- draft inputs": ("drafter", "set_inputs_first_pass"),
    "- draft metadata": ("drafter", "build_per_group_and_layer_attn_metadata"),
    "- draft forward": ("drafter.model", "forward"),
    "- draft logits, argmax": ("drafter", "_greedy_sample"),
}


@dataclass(frozen=True)
class Plan:
    """What ``bench step`` measures; see the command's options."""

    model: str
    speculative_config: Mapping[str, Any]
    prompts: Sequence[str]
    max_tokens: int
    batch: int
    temperature: float
    rounds: int
    compiled: bool


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


class Engine:
    """One configuration, in this process."""

    def __init__(self, plan: Plan, name: str) -> None:
        from vllm import LLM, SamplingParams

        spec = None if name == NONE else dict(plan.speculative_config)
        loop = {BEFORE: "stock", AFTER: "auto"}.get(name)
        self.llm = LLM(
            model=plan.model,
            dtype="float32",
            max_model_len=512,
            max_num_seqs=max(plan.batch, 1),
            enforce_eager=not plan.compiled,
            disable_log_stats=False,
            enable_prefix_caching=False,
            speculative_config=spec,
            additional_config={SECTION: {"draft_loop": loop}} if loop else {},
            seed=0,
        )
        self.rule = rule_from_engine(self.llm.get_metrics())
        self.plan = plan
        self.steps = 0
        self.clock = Clock()
        self.tokens = 0
        self.tokens_per_s: list[float] = []
        self.ms_per_step: list[float] = []
        self.sampling = [
            SamplingParams(
                temperature=plan.temperature,
                max_tokens=plan.max_tokens,
                ignore_eos=True,
                seed=index if plan.temperature else None,
            )
            for index in range(plan.batch)
        ]

    @property
    def runner(self) -> Any:
        """The model runner of the engine."""
        return self.llm.llm_engine.model_executor.driver_worker.worker.model_runner

    def instrument(self) -> None:
        """Start to watch the parts."""
        for part, (path, method) in PARTS.items():
            owner = self.runner
            for name in filter(None, path.split(".")):
                owner = getattr(owner, name, None)
            if owner is not None and hasattr(owner, method):
                self.clock.watch(owner, method, part)

    def generate(self, *, record: bool) -> None:
        """Send all prompts, a batch at a time."""
        core = self.llm.llm_engine
        started, tokens, steps = time.perf_counter(), 0, 0
        for first in range(0, len(self.plan.prompts), self.plan.batch):
            batch = self.plan.prompts[first : first + self.plan.batch]
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

    def result(self) -> dict[str, Any]:
        """Return the figures of this configuration."""
        parts = {
            part: round(1e3 * self.clock.seconds[part] / self.steps, 3)
            for part in PARTS
            if part in self.clock.seconds
        }
        whole = Summary.of(self.ms_per_step)
        top = sum(ms for part, ms in parts.items() if not part.startswith("-"))
        return {
            "rule": self.rule,
            "tokens_per_s": Summary.of(self.tokens_per_s).as_dict(),
            "ms_per_step": whole.as_dict(),
            "parts_ms": {**parts, "rest": round(whole.median - top, 3)},
            # Counted here: of several engines in a process, vLLM's counters know the newest only.
            "tokens_per_engine_step": round(self.tokens / self.steps, 3),
        }


def configurations(speculative_config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what there is to compare, no speculation first."""
    spec = with_underscores(speculative_config)
    return (NONE, BEFORE, AFTER) if check_method(spec).has_draft_loop else (NONE, WITHOUT_LOOP)


def run(plan: Plan) -> dict[str, Any]:
    """Run the configurations in turn and return the record."""
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    engines = {}
    names = configurations(plan.speculative_config)
    for name in names:
        say(f"loading: {name}")
        engines[name] = Engine(plan, name)
        engines[name].generate(record=False)
        engines[name].instrument()
        engines[name].clock.seconds.clear()
    for index in range(plan.rounds):
        say(f"round {index + 1} of {plan.rounds}")
        for engine in engines.values():
            engine.generate(record=True)
    record = {
        "benchmark": "step",
        "provenance": provenance.collect(),
        "plan": {
            "model": redaction.path(plan.model),
            "speculative_config": redaction.options(plan.speculative_config),
            "prompts": len(plan.prompts),
            "max_tokens": plan.max_tokens,
            "batch": plan.batch,
            "temperature": plan.temperature,
            "rounds": plan.rounds,
            "compiled": plan.compiled,
        },
        "results": {name: engine.result() for name, engine in engines.items()},
        "speedup": {
            name: paired_ratio(engines[name].tokens_per_s, engines[NONE].tokens_per_s).as_dict()
            for name in names[1:]
        },
    }
    say(format_table(record))
    return record


def format_table(record: Mapping[str, Any]) -> str:
    """Return milliseconds per step by part, one column a configuration."""
    results = record["results"]
    rows = [
        ("ms per step", {name: result["ms_per_step"]["median"] for name, result in results.items()})
    ]
    for part in (*PARTS, "rest"):
        rows.append(
            (part, {name: result["parts_ms"].get(part) for name, result in results.items()})
        )
    *_, last = results.values()
    lines = ["".join([" " * 24, *(f"{name:>18}" for name in results)])]
    for part, values in rows:
        cells = ("-" if values[name] is None else f"{values[name]:.2f}" for name in results)
        lines.append("".join([f"{part:24}", *(f"{cell:>18}" for cell in cells)]))
    lines.append(f"speed-up: {record['speedup']}{note_on_rule(last['rule'])}")
    return "\n".join(lines)
