"""Requests, the batch that verifies them, and the same by vLLM's sampler one token at a time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm import SamplingParams
from vllm.v1.outputs import SamplerOutput
from vllm.v1.sample.logits_processor import (
    BUILTIN_LOGITS_PROCESSORS,
    AdapterLogitsProcessor,
    BatchUpdate,
    LogitsProcessor,
    LogitsProcessors,
)
from vllm.v1.sample.metadata import SamplingMetadata
from vllm.v1.sample.sampler import Sampler
from vllm.v1.sample.thinking_budget_state import ThinkingBudgetStateHolder
from vllm.v1.spec_decode.metadata import SpecDecodeMetadata

from tests.speculation import make_speculation
from vllm_ascend_spec.ops import cpu_library
from vllm_ascend_spec.ops.row_noise import RowNoise
from vllm_ascend_spec.ops.verify_seeded.noise import noise
from vllm_ascend_spec.verification.no_draft_step import no_draft_metadata
from vllm_ascend_spec.verification.sampler import SpecVerifier

# Most drafts of a request.
LONGEST = 6
VOCAB = 12
BACKENDS = (
    "reference",
    pytest.param(
        "cpu",
        marks=pytest.mark.skipif(
            cpu_library.library_problem() is not None, reason=cpu_library.library_problem() or ""
        ),
    ),
)


@dataclass
class Request:
    """One request in the middle of its life.

    Attributes:
        params: what the person asked for.
        prompt: prompt tokens.
        output: tokens put out so far.
        drafts: tokens to verify.
        bad_words: token ids of the words that must not appear.
    """

    params: SamplingParams
    prompt: list[int]
    output: list[int]
    drafts: list[int] = field(default_factory=list)
    bad_words: list[list[int]] = field(default_factory=list)

    @property
    def is_greedy(self) -> bool:
        return self.params.temperature == 0


def request(drafts: tuple[int, ...] = (), **params: Any) -> Request:
    """Return a short request, greedy unless ``params`` say another temperature."""
    return Request(
        SamplingParams(**{"temperature": 0.0, **params}),
        prompt=[1, 2],
        output=[3],
        drafts=[*drafts],
    )


class PenaliseRepeats(AdapterLogitsProcessor):
    """Requests with ``repeat_penalty`` lose that much on tokens of their output."""

    def is_argmax_invariant(self) -> bool:
        return False

    def new_req_logits_processor(self, params: SamplingParams) -> Callable[..., Any] | None:
        amount = (params.extra_args or {}).get("repeat_penalty")
        if amount is None:
            return None

        def process(output: list[int], logits: torch.Tensor) -> torch.Tensor:
            logits[sorted(set(output))] -= amount
            return logits

        return process


class FollowThePrompt(AdapterLogitsProcessor):
    """Requests with ``follow`` favour what follows their last token in the prompt."""

    def is_argmax_invariant(self) -> bool:
        return False

    def new_req_logits_processor(self, params: SamplingParams) -> Callable[..., Any] | None:
        amount = (params.extra_args or {}).get("follow")
        if amount is None:
            return None

        def process(prompt: list[int], output: list[int], logits: torch.Tensor) -> torch.Tensor:
            last = (prompt + output)[-1]
            favoured = [b for a, b in itertools.pairwise(prompt) if a == last]
            new = logits.clone()
            new[favoured] += amount
            return new

        return process


class Flatten(AdapterLogitsProcessor):
    """Requests with ``flatten`` have their logits multiplied; the most likely stays so."""

    def is_argmax_invariant(self) -> bool:
        return True

    def new_req_logits_processor(self, params: SamplingParams) -> Callable[..., Any] | None:
        factor = (params.extra_args or {}).get("flatten")
        if factor is None:
            return None
        return lambda output, logits: logits * factor ** (1 + len(output) % 2)


class BatchLevel(LogitsProcessor):
    """A processor of its own making, which vLLM gives whole batches."""

    def __init__(self, *_: Any) -> None:
        self.calls: list[Any] = []

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        return None

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: Any) -> None:
        return None

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        raise AssertionError("apply() knows nothing of rows")


class RowWise(BatchLevel):
    """The same with the method that makes it usable here."""

    def apply_to_rows(
        self, logits: torch.Tensor, row_request: list[int], row_drafts: list[list[int]]
    ) -> torch.Tensor:
        self.calls.append((row_request, row_drafts))
        return logits + torch.tensor(row_request)[:, None] + 1


CUSTOM = (PenaliseRepeats, FollowThePrompt, Flatten)


def sampling_metadata(
    requests: Sequence[Request],
    *,
    custom: Sequence[type] = CUSTOM,
    generators: dict[int, torch.Generator] | None = None,
    max_num_logprobs: int | None = None,
    logprob_token_ids: dict[int, list[int]] | None = None,
) -> SamplingMetadata:
    """Build what vLLM's input batch builds for ``requests``."""
    params = [request.params for request in requests]
    all_greedy = all(request.is_greedy for request in requests)

    def column(name: str, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.tensor([getattr(p, name) for p in params], dtype=dtype)

    neutral = all(
        (p.presence_penalty, p.frequency_penalty, p.repetition_penalty) == (0, 0, 1) for p in params
    )
    top_k = torch.tensor([p.top_k if p.top_k > 0 else VOCAB for p in params], dtype=torch.int32)
    width = max(len(request.prompt) for request in requests)
    prompts = [r.prompt + [VOCAB] * (width - len(r.prompt)) for r in requests]
    return SamplingMetadata(
        temperature=None if all_greedy else column("temperature"),
        all_greedy=all_greedy,
        all_random=not any(request.is_greedy for request in requests),
        top_p=column("top_p") if any(p.top_p < 1 for p in params) else None,
        top_k=top_k if bool((top_k < VOCAB).any()) else None,
        generators=generators or {},
        max_num_logprobs=max_num_logprobs,
        no_penalties=neutral,
        prompt_token_ids=None if neutral else torch.tensor(prompts),
        frequency_penalties=column("frequency_penalty"),
        presence_penalties=column("presence_penalty"),
        repetition_penalties=column("repetition_penalty"),
        output_token_ids=[request.output for request in requests],
        allowed_token_ids_mask=_allowed_mask(params),
        bad_words_token_ids={i: r.bad_words for i, r in enumerate(requests) if r.bad_words},
        logitsprocs=_processors(requests, custom),
        logprob_token_ids=logprob_token_ids,
        spec_token_ids=[request.drafts for request in requests],
    )


def _allowed_mask(params: Sequence[SamplingParams]) -> torch.Tensor | None:
    if not any(p.allowed_token_ids for p in params):
        return None
    # True marks a token that is not allowed, as in vLLM.
    mask = torch.zeros(len(params), VOCAB, dtype=torch.bool)
    for index, p in enumerate(params):
        if p.allowed_token_ids:
            mask[index] = True
            mask[index, p.allowed_token_ids] = False
    return mask


def _processors(requests: Sequence[Request], custom: Sequence[type]) -> LogitsProcessors:
    config = SimpleNamespace(scheduler_config=SimpleNamespace(max_num_seqs=len(requests)))
    classes = (*BUILTIN_LOGITS_PROCESSORS, *custom)
    built = [cls(config, torch.device("cpu"), False) for cls in classes]
    added = [(i, r.params, r.prompt, r.output) for i, r in enumerate(requests)]
    update = BatchUpdate(batch_size=len(requests), removed=[], added=added, moved=[])
    for processor in built:
        processor.update_state(update)
    return LogitsProcessors(built)


def budget_holder(requests: Sequence[Request], num_drafts: int) -> ThinkingBudgetStateHolder:
    """Build vLLM's holder of thinking budgets; 9 begins a thought, 10 ends it."""
    reasoning: Any = SimpleNamespace(reasoning_start_token_ids=[9], reasoning_end_token_ids=[10])
    holder = ThinkingBudgetStateHolder(
        reasoning, len(requests), num_drafts, torch.device("cpu"), False
    )
    added = [(i, r.params, r.prompt, r.output) for i, r in enumerate(requests)]
    holder.sync_batch(BatchUpdate(len(requests), removed=[], added=added, moved=[]))
    return holder


def spec_metadata(requests: Sequence[Request]) -> SpecDecodeMetadata:
    """Build what vLLM's runner builds for the drafts of ``requests``."""
    metadata = SpecDecodeMetadata.make_dummy([r.drafts for r in requests], torch.device("cpu"))
    num_rows = len(metadata.logits_indices)
    bonus = metadata.cu_num_sampled_tokens - 1
    is_target = torch.ones(num_rows, dtype=torch.bool)
    is_target[bonus.long()] = False
    metadata.logits_indices = torch.arange(num_rows, dtype=torch.int32)
    metadata.bonus_logits_indices = bonus
    metadata.target_logits_indices = is_target.nonzero()[:, 0].int()
    return metadata


def make_verifier(
    mode: str = "raw_logprobs",
    backend: str | None = None,
    rule: str = "token",
    rates: Sequence[float] | None = None,
    seeds_for: str | None = None,
) -> SpecVerifier:
    """Build a verifier as the runner does; with ``rates`` it accepts synthetically."""
    given = seeds_for or ("all" if rule == "seeded" else "none")
    spec = SimpleNamespace(
        rejection_sample_method="standard" if rates is None else "synthetic",
        synthetic_acceptance_rates=rates,
    )
    config: Any = SimpleNamespace(
        model_config=SimpleNamespace(logprobs_mode=mode), speculative_config=spec
    )
    options = make_speculation(verify_backend=backend, rule=rule, seeds_for=given, max_k=LONGEST)
    return SpecVerifier(Sampler(logprobs_mode=mode), config, options)


def noise_of(
    requests: Sequence[Request],
    seeds: Mapping[int, int],
    later: int = 0,
) -> RowNoise | None:
    """Build what our runner builds of the requests' seeds.

    Args:
        requests: the batch.
        seeds: by index of the request, int64; requests that are not named have none.
        later: by how much every text is longer than the requests say.
    """
    sample = {index for index, request in enumerate(requests) if not request.is_greedy}
    if not sample & {*seeds}:
        return None
    without = torch.tensor([i in sample and i not in seeds for i in range(len(requests))])
    return RowNoise(
        torch.tensor([seeds.get(index, 0) for index in range(len(requests))]),
        torch.tensor([len(r.prompt) + len(r.output) + later for r in requests]),
        without if bool(without.any()) else None,
    )


def verify_draftless(
    requests: Sequence[Request],
    logits: torch.Tensor,
    noise: RowNoise | None,
    metadata: SamplingMetadata | None = None,
    **how: Any,
) -> SamplerOutput:
    """Run a step without drafts as our runner does where a request has a seed."""
    metadata = sampling_metadata(requests) if metadata is None else metadata
    spec = no_draft_metadata(metadata, len(requests), logits, has_seeds=noise is not None)
    assert spec is not None
    verifier = make_verifier(**how)
    verifier.noise = noise
    return verifier(spec, None, logits, metadata)


def num_rows(requests: Sequence[Request]) -> int:
    return sum(len(request.drafts) + 1 for request in requests)


def rows_of(requests: Sequence[Request], logits: torch.Tensor) -> list[torch.Tensor]:
    """Cut the batch's logits into requests."""
    return list(logits.split([len(request.drafts) + 1 for request in requests]))


def tokens_of(output: torch.Tensor) -> list[list[int]]:
    """Return each request's tokens without padding."""
    return [[token for token in row if token != -1] for row in output.tolist()]


def single_step(
    request: Request,
    row: torch.Tensor,
    past: list[int],
    *,
    mode: str = "raw_logprobs",
    max_num_logprobs: int | None = None,
    custom: Sequence[type] = CUSTOM,
) -> Any:
    """Let vLLM's sampler pick one token of one request after ``past``; no speculation anywhere."""
    alone = Request(request.params, request.prompt, [*request.output, *past], [], request.bad_words)
    metadata = sampling_metadata([alone], custom=custom, max_num_logprobs=max_num_logprobs)
    return Sampler(logprobs_mode=mode)(row[None].clone(), metadata)


def step_by_step(
    request: Request, rows: torch.Tensor, custom: Sequence[type] = CUSTOM
) -> list[int]:
    """Return what a greedy request puts out without speculation, as far as its drafts reach."""
    tokens: list[int] = []
    for position, row in enumerate(rows):
        output = single_step(request, row, request.drafts[:position], custom=custom)
        tokens.append(int(output.sampled_token_ids))
        if request.drafts[position : position + 1] != tokens[-1:]:
            break
    return tokens


def seeded_step_by_step(
    request: Request, rows: torch.Tensor, seed: int, position: int | None = None
) -> list[int]:
    """Return what a request with a seed puts out, as far as its drafts reach.

    Each token is the winner of the race of :mod:`vllm_ascend_spec.ops.verify_seeded`, run by the
    distribution that vLLM's sampler has for that token.

    Args:
        request: one that samples.
        rows: [num_drafts + 1, vocab_size], its logits.
        seed: int64.
        position: of the first token; left out: behind the request's text.
    """
    tokens: list[int] = []
    first = len(request.prompt) + len(request.output) if position is None else position
    for place, row in enumerate(rows):
        past = request.drafts[:place]
        stock = single_step(request, row, past, mode="processed_logprobs", max_num_logprobs=-1)
        probs = stock.logprobs_tensors.logprobs[0].double().exp()
        own = noise(torch.tensor([seed]), torch.tensor([first + place]), VOCAB)[0]
        tokens.append(int((own / probs).argmin()))
        if request.drafts[place : place + 1] != tokens[-1:]:
            break
    return tokens
