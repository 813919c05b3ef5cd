"""Time steps of dummy requests before an engine serves, for the choice of K.

The steps run through the engine itself, so their times include all that real steps do: scheduling,
input preparation, the target over n·(K+1) rows, verification and the draft.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from vllm_ascend_spec.config.resolved import speculation_of
from vllm_ascend_spec.config.schedule import has_lockstep_replicas
from vllm_ascend_spec.config.schema import AUTO
from vllm_ascend_spec.control.adaptive_scheduler import AdaptiveKMixin
from vllm_ascend_spec.log import get_logger

if TYPE_CHECKING:
    from vllm.config import VllmConfig

# Batches of 1, 4, 16 … requests are timed, and the largest.
FACTOR = 4
# Measurements of each cell after the first and the second round; the first includes what runs only
# once. And the most steps to get them: two settle, and with async scheduling a third one.
TIMES, MOST_STEPS = (1, 8), 12
# Tokens of a dummy prompt, and how many different ones: the first tokens of any vocabulary.
PROMPT, TOKENS = 8, 64
# Seconds after which no further cell is started.
LONGEST = 10.0

logger = get_logger(__name__)


def profile_steps(core: Any) -> None:
    """Time an engine's steps once, if its K is adaptive.

    Args:
        core: vLLM's ``EngineCore``, before its first request.
    """
    scheduler = core.scheduler
    if not isinstance(scheduler, AdaptiveKMixin) or scheduler.is_warmed_up:
        return
    scheduler.is_warmed_up = True
    if (reason := reason_against(core.vllm_config)) is not None:
        logger.info("What steps cost is measured in service: %s.", reason)
        return
    begin = time.perf_counter()
    batches = batch_sizes(core.vllm_config.scheduler_config.max_num_seqs)
    try:
        for times in TIMES:
            for cell in cells(batches, scheduler.k_values):
                if time.perf_counter() - begin < LONGEST:
                    _time_cell(core, *cell, times)
    finally:
        scheduler.end_warmup()
    # No real request has these prefixes, and dummy text teaches drafters nothing.
    core.reset_prefix_cache()
    core.model_executor.collective_rpc(_forget)
    seconds = time.perf_counter() - begin
    logger.info("Timed steps of dummy requests for %.1f s to choose K.", seconds)


def reason_against(vllm_config: VllmConfig) -> str | None:
    """Return why no dummy requests can be served; None if they can."""
    asked = speculation_of(vllm_config)
    if asked.draft_length == AUTO:
        return "K and 0 are soon told apart"
    if not asked.has_draft_model:
        return f"method {asked.method!r} drafts from text, and dummy text says nothing"
    if has_lockstep_replicas(vllm_config):
        return "data-parallel replicas of a mixture of experts step together"
    if vllm_config.kv_transfer_config is not None or vllm_config.ec_transfer_config is not None:
        return "a connector would hand dummy requests on"
    if vllm_config.model_config.is_encoder_decoder:
        return "the target has an encoder"
    return None


def batch_sizes(largest: int) -> list[int]:
    """Return the batch sizes to time, the most informative first in case time runs out."""
    sizes = {largest}
    size = 1
    while size < largest:
        sizes.add(size)
        size *= FACTOR
    first, *between = sorted(sizes)
    return [first, *reversed(between)]


def cells(batches: Sequence[int], k_values: Sequence[int]) -> Iterator[tuple[int, bool, int]]:
    """Yield the cells to time: number of requests, whether they sample, and K.

    Args:
        batches: numbers of requests.
        k_values: values of K to choose from, ascending.
    """
    for requests in batches:
        for samples in (False, True):
            for k in reversed(k_values):
                yield requests, samples, k


def _time_cell(core: Any, requests: int, samples: bool, k: int, times: int) -> None:
    """Serve dummy requests until there are ``times`` measurements, then abort them."""
    scheduler = core.scheduler
    scheduler.warmup_k = k
    names = [f"ascend-spec-warmup-{number}" for number in range(requests)]
    limit = core.vllm_config.model_config.max_model_len
    for number, name in enumerate(names):
        core.add_request(*core.preprocess_add_request(_request(name, number, samples, limit)))
    costs = scheduler.classes[samples].chooser.costs
    # Prompts of a large batch may take several steps.
    while scheduler.get_num_unfinished_requests() and not _all_decode(scheduler, names):
        _step(core)
    for _ in range(MOST_STEPS):
        if costs.count(requests, k) >= times or not scheduler.get_num_unfinished_requests():
            break
        _step(core)
    core.abort_requests(names)
    while scheduler.has_requests() or core.batch_queue:
        _step(core)


def _forget(worker: Any) -> None:
    """Let a worker's drafter forget what it has learned, if it learns."""
    forget = getattr(getattr(worker.model_runner, "drafter", None), "forget", None)
    if forget is not None:
        forget()


def _all_decode(scheduler: Any, names: Sequence[str]) -> bool:
    """Tell whether requests are running and each of them has produced a token."""
    running = {request.request_id for request in scheduler.running}
    left = [scheduler.requests[name] for name in names if name in scheduler.requests]
    return all(r.num_output_tokens > 0 for r in left if r.request_id in running) and bool(running)


def _step(core: Any) -> None:
    """Run one step as the engine's own loop does; its outputs are dropped."""
    _, has_run = core.step_fn()
    core.post_step(has_run)


def _request(name: str, number: int, samples: bool, limit: int) -> Any:
    from vllm import SamplingParams
    from vllm.v1.engine import EngineCoreRequest

    prompt = min(PROMPT, limit - 1)
    params = SamplingParams(
        temperature=0.8 if samples else 0.0, max_tokens=limit - prompt, ignore_eos=True
    )
    return EngineCoreRequest(
        request_id=name,
        prompt_token_ids=[(number + place) % TOKENS for place in range(prompt)],
        mm_features=None,
        sampling_params=params,
        pooling_params=None,
        arrival_time=time.time(),
        lora_request=None,
        cache_salt=name,
        data_parallel_rank=None,
    )
