"""A scheduler of ours over fakes for vLLM's, and what it is told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from vllm_ascend_spec.config.resolved import SpecConfig, attach
from vllm_ascend_spec.config.tree_shape import Tree
from vllm_ascend_spec.control.adaptive_scheduler import SAMPLES, AdaptiveKMixin
from vllm_ascend_spec.control.scheduler import SpecSchedulerMixin, StepK
from vllm_ascend_spec.step_report import FIXED

Rows = tuple[tuple[int, int, int], ...]


def engine(
    schedule: Rows | None = None,
    copies: int = 1,
    context: int = 64,
    *,
    is_full: bool = False,
    length: str = "fixed",
    k_values: tuple[int, ...] | None = None,
    tree: Tree | None = None,
) -> Any:
    """Return vLLM's configuration of an engine, as far as a scheduler reads it."""
    config = SimpleNamespace(
        speculative_config=SimpleNamespace(
            max_model_len=None,
            method="eagle",
            draft_model_config=SimpleNamespace(max_model_len=context),
        ),
        compilation_config=SimpleNamespace(
            cudagraph_mode=SimpleNamespace(has_full_cudagraphs=lambda: is_full)
        ),
        scheduler_config=SimpleNamespace(max_num_seqs=5),
        parallel_config=SimpleNamespace(data_parallel_size=copies),
        model_config=SimpleNamespace(is_moe=True, max_model_len=64),
    )
    record = SpecConfig(
        device="npu",
        family="ascend",
        method="eagle",
        vllm_method="eagle",
        drafter=(),
        max_k=3 if tree is None else len(tree),
        tree=tree,
        has_trees=tree is not None,
        schedule=schedule,
        draft_length=length,
        draft_lengths=k_values,
    )
    attach(config, record)
    return config


class Stock:
    """Takes up outputs as vLLM's scheduler does, and says so."""

    num_spec_tokens = 3
    dynamic_sd_lookup: Any = None
    vllm_config = engine()
    scheduler_config = SimpleNamespace(async_scheduling=False)
    need_mamba_block_aligned_split = False
    num_prefill_lookahead = 0
    running: Any = ()

    def __init__(self) -> None:
        self.requests: dict[str, Any] = {}
        self.taken_up: Any = None

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> str:
        return "vLLM's"

    def add_request(self, request: Any) -> None:
        self.requests[request.request_id] = request

    def update_draft_token_ids(self, draft_token_ids: Any) -> None:
        self.taken_up = dict(
            zip(draft_token_ids.req_ids, draft_token_ids.draft_token_ids, strict=True)
        )

    def schedule(self, requests: int) -> Any:
        """Pad a request to the width that vLLM pads to, if it does."""
        pads = self.num_spec_tokens > 0 and self.dynamic_sd_lookup is None
        scheduled = step({f"r{n}": [] for n in range(requests)}, k=self.num_spec_tokens)
        scheduled.padded = self.num_spec_tokens if pads else None
        self._update_after_schedule(scheduled)
        return scheduled

    def _update_after_schedule(self, scheduler_output: Any) -> None:
        places = [-1] * 3
        for request in self.requests.values():
            request.spec_token_ids = places

    def make_stats(self, cudagraph_stats: Any = None) -> Any:
        return SimpleNamespace(cudagraph_stats=cudagraph_stats)


class Fixed(SpecSchedulerMixin, Stock):
    """Without what vLLM's builds."""

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        run(self, scheduler_output)
        return super().update_from_output(scheduler_output, model_runner_output)


class Adaptive(AdaptiveKMixin, Stock):
    """With K chosen; steps that it did not schedule are of the class of batch used last."""

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        vars(scheduler_output).setdefault(SAMPLES, self._class is self.classes[True])
        run(self, scheduler_output)
        return super().update_from_output(scheduler_output, model_runner_output)


class Scheduler(Adaptive):
    """With several values to choose K from."""

    vllm_config = engine(length="adaptive", k_values=(0, 1, 3))


def request(name: str, extra_args: Any = None) -> Any:
    """Return a request that came in."""
    params = SimpleNamespace(extra_args=extra_args)
    return SimpleNamespace(
        request_id=name, sampling_params=params, spec_token_ids=[], is_finished=lambda: False
    )


def step(drafts: dict[str, list[int]], prompts: int = 0, k: int = 3, **more: Any) -> Any:
    """Return what was scheduled: requests with drafts, and tokens of prompts beside them."""
    scheduled = {name: 1 + len(tokens) for name, tokens in drafts.items()}
    total = sum(scheduled.values()) + prompts
    return SimpleNamespace(
        num_scheduled_tokens=scheduled | ({"prompt": prompts} if prompts else {}),
        scheduled_spec_decode_tokens={name: tokens for name, tokens in drafts.items() if tokens},
        total_num_scheduled_tokens=total,
        num_spec_tokens_to_schedule=k,
        num_invalid_spec_tokens=more.get("invalid"),
        finished_req_ids=set(more.get("finished", ())),
        ascend_spec_k=StepK(k, FIXED, verified=more.get("verified", 0)),
    )


def outcome(tokens: dict[str, list[int]]) -> Any:
    """Return what the worker sampled."""
    return SimpleNamespace(
        sampled_token_ids=list(tokens.values()),
        req_id_to_index={name: place for place, name in enumerate(tokens)},
    )


def observed(scheduler: Any) -> list[float]:
    """Return how often each position was looked at."""
    acceptance = getattr(scheduler, "chooser", scheduler).acceptance
    return [round(n) for n in acceptance._verified]


class Auto(Adaptive):
    """With K or 0."""

    vllm_config = engine(length="auto", k_values=(0, 3))
    running: tuple[Any, ...] = ()


def run(scheduler: Any, scheduler_output: Any) -> None:
    """Let the requests of a step be running, if nothing else is said of them."""
    for name in scheduler_output.scheduled_spec_decode_tokens:
        scheduler.requests.setdefault(
            name,
            SimpleNamespace(num_output_tokens=0, sampling_params=None, is_finished=lambda: False),
        )


def decoding(scheduler: Any, *names: str) -> None:
    """Let requests be in the midst of their answers."""
    for name in names:
        scheduler.requests[name] = SimpleNamespace(
            num_output_tokens=4, sampling_params=None, is_finished=lambda: False
        )
