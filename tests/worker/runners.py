"""A runner of vLLM that has just enough to sample, below our mixin, with vLLM's own batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from vllm import SamplingParams
from vllm.v1.worker.gpu_input_batch import CachedRequestState
from vllm.v1.worker.gpu_model_runner import GPUModelRunner

from tests.patches.batches import empty_batch
from tests.verification.requests import VOCAB, Request, make_verifier, spec_metadata
from vllm_ascend_spec.worker.seeded_sampling import SeededSamplingMixin

MOST_REQUESTS = 4
# In the buffers behind the requests of the batch, where values of earlier batches stay.
STALE = 999


def make_state(
    name: str,
    temperature: float = 1.0,
    seed: int | None = None,
    prompt: Sequence[int] = (1, 2, 3),
    output: Sequence[int] = (),
) -> CachedRequestState:
    """Return a request as vLLM's runner keeps it; with a seed it has a generator."""
    params = SamplingParams(temperature=temperature, seed=seed, max_tokens=20)
    has_generator = seed is not None and temperature > 0
    return CachedRequestState(
        req_id=name,
        prompt_token_ids=[*prompt],
        mm_features=[],
        sampling_params=params,
        generator=torch.Generator().manual_seed(seed or 0) if has_generator else None,
        block_ids=([1, 2],),
        num_computed_tokens=0,
        output_token_ids=[*output],
    )


def make_runner(stock: type = GPUModelRunner, mixin: type = SeededSamplingMixin, **how: Any) -> Any:
    """Return a runner with an empty batch; ``how`` goes to ``make_verifier``."""
    verifier = make_verifier(**how)
    runner: Any = object.__new__(type("Runner", (mixin, stock), {}))
    vars(runner).update(
        input_batch=empty_batch(MOST_REQUESTS, VOCAB),
        discard_request_mask=SimpleNamespace(np=np.zeros(MOST_REQUESTS, dtype=bool)),
        seq_lens=torch.full((MOST_REQUESTS,), STALE, dtype=torch.int32),
        device=torch.device("cpu"),
        use_async_scheduling=False,
        sampler=verifier.sampler,
        rejection_sampler=verifier,
        requests={},
        vllm_config=SimpleNamespace(
            model_config=SimpleNamespace(seed=0),
            parallel_config=SimpleNamespace(data_parallel_rank=0),
        ),
        _draft_probs=None,
        _draft_prob_req_ids=None,
    )

    def note(module: Any, _: Any) -> None:
        runner.noise_of_step = module.noise

    verifier.register_forward_pre_hook(note)
    return runner


def enter(runner: Any, *states: CachedRequestState) -> None:
    """Add requests to the batch, as the runner does before a step."""
    for state in states:
        runner.requests[state.req_id] = state
        runner.input_batch.add_request(state)
    runner.input_batch.refresh_metadata()


def leave(runner: Any, *names: str) -> None:
    """Remove requests, as the runner does with those that are not scheduled."""
    for name in names:
        runner.input_batch.remove_request(name)
    runner.input_batch.condense()
    runner.input_batch.refresh_metadata()


def as_request(state: CachedRequestState, drafts: Sequence[int] = ()) -> Request:
    """Return the request as the verifier's tests describe it."""
    assert state.prompt_token_ids is not None
    assert state.sampling_params is not None
    return Request(state.sampling_params, state.prompt_token_ids, state.output_token_ids, [*drafts])


def sample(
    runner: Any,
    states: Mapping[str, CachedRequestState],
    table: torch.Tensor,  # [length, VOCAB]
    drafts: Mapping[str, Sequence[int]] | None = None,
) -> dict[str, list[int]]:
    """Run a step; return the tokens that each request got, which its output has then.

    Args:
        runner: its batch has the requests.
        states: the requests by name.
        table: logits of the token at each position of a text.
        drafts: drafts by request; None for a step without.
    """
    names = runner.input_batch.req_ids
    requests = [as_request(states[name], (drafts or {}).get(name, ())) for name in names]
    ends = [len(r.prompt) + len(r.output) + len(r.drafts) for r in requests]
    runner.seq_lens[: len(ends)] = torch.tensor(ends, dtype=torch.int32)
    logits = torch.cat(
        [table[e - len(r.drafts) : e + 1] for e, r in zip(ends, requests, strict=True)]
    )
    metadata = None if drafts is None else spec_metadata(requests)
    output = runner._sample(logits, metadata).sampled_token_ids.tolist()
    found = {n: [t for t in row if t >= 0] for n, row in zip(names, output, strict=True)}
    for name, tokens in found.items():
        states[name].output_token_ids += tokens
    return found
