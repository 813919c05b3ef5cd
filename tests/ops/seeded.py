"""Arguments of ``verify_seeded``, and whether a backend's result is right up to rounding."""

from __future__ import annotations

import itertools
from typing import Any

import torch

from vllm_ascend_spec.ops.verify_sample.reference import target_scores
from vllm_ascend_spec.ops.verify_seeded import verify_seeded
from vllm_ascend_spec.ops.verify_seeded.noise import noise

# Of ``verify_sample`` that it does not take.
NOT_TAKEN = ("draft_probs", "accept_uniform", "sample_uniform", "rule")
# Nats by which two tokens may be told apart wrongly, for each 1 + abs(logit) / temperature.
TIE = 4e-6
# By which top-p and min-p may be moved, as in the contract of ``verify_sample``.
MOVES = (0.0, -2e-6, 2e-6)


def with_seeds(case: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
    """Turn a case of ``verify_sample`` into one of ``verify_seeded``, with the same drafts."""
    arguments = {name: value for name, value in case.items() if name not in NOT_TAKEN}
    num_reqs = case["cu_num_draft_tokens"].shape[0]
    arguments["seeds"] = torch.randint(-(2**63), 2**63 - 1, (num_reqs,), generator=generator)
    arguments["positions"] = torch.randint(0, 2**33, (num_reqs,), generator=generator)
    return arguments


def seeded_case(case: dict[str, Any], index: int) -> dict[str, Any]:
    """Turn a case of ``verify_sample`` into one of ``verify_seeded``.

    Its drafts are the reference's own samples up to a place that is chosen at random.
    """
    generator = torch.Generator().manual_seed(index)
    arguments = with_seeds(case, generator)
    drafts = arguments["draft_token_ids"].tolist()
    right = (torch.rand(len(drafts), generator=generator) < 0.8).tolist()
    sampled = samples_of_rows(arguments)
    ends = [0, *case["cu_num_draft_tokens"].tolist()]
    for request, (start, end) in enumerate(itertools.pairwise(ends)):
        for place in range(start, end):
            own = sampled[place + request]
            if right[place]:
                drafts[place] = own
            elif drafts[place] != own:
                break
    return {**arguments, "draft_token_ids": torch.tensor(drafts, dtype=torch.int32)}


def samples_of_rows(arguments: dict[str, Any]) -> list[int]:
    """Return the reference's sample of each row, which no draft changes."""
    lengths = torch.diff(arguments["cu_num_draft_tokens"], prepend=torch.zeros(1).int()) + 1
    request = torch.repeat_interleave(lengths)
    place = torch.cat([torch.arange(int(length)) for length in lengths])
    own = {name: arguments.get(name) for name in ("temperature", "top_k", "top_p", "min_p")}
    tokens, _ = verify_seeded(
        arguments["logits"],
        torch.zeros(0, dtype=torch.int32),
        torch.zeros_like(request, dtype=torch.int32),
        0,
        **{name: None if value is None else value[request] for name, value in own.items()},
        seeds=arguments["seeds"][request],
        positions=arguments["positions"][request] + place,
        backend="reference",
    )
    return tokens[:, 0].tolist()


def is_tie(
    arguments: dict[str, Any], request: int, place: int, token: int, *, row: int | None = None
) -> bool:
    """Tell whether rounding explains a token that is not the reference's.

    Args:
        arguments: of the call.
        request: whose token it is.
        place: how many tokens come before it.
        token: what it is.
        row: of the request, that it was sampled from; None: the one at ``place``.
    """
    ends = [0, *arguments["cu_num_draft_tokens"].tolist()]
    index = ends[request] + request + (place if row is None else row)
    row_logits = arguments["logits"][index][None]
    temperature = arguments["temperature"][request : request + 1]
    if temperature == 0:
        return False
    own = {name: arguments.get(name) for name in ("top_k", "top_p", "min_p")}
    own = {name: None if v is None else v[request : request + 1] for name, v in own.items()}
    position = arguments["positions"][request : request + 1] + place
    gain = -noise(arguments["seeds"][request : request + 1], position, row_logits.shape[1]).log()[0]
    for top_p in MOVES:
        for min_p in MOVES:
            moved = dict(own)
            for name, move in (("top_p", top_p), ("min_p", min_p)):
                value = own[name]
                if value is not None and 0 < value < 1:
                    moved[name] = (value.double() + move).clamp(1e-300, 1.0)
            scores = target_scores(row_logits, temperature, **moved)[0]
            reached = scores + gain
            size = 1 + max(abs(float(scores[token])), abs(float(scores[reached.argmax()])))
            if float(reached.max() - reached[token]) <= TIE * size:
                return True
    return False


def assert_as_the_reference(arguments: dict[str, Any], backend: str) -> int:
    """Fail unless a backend is right; return how many requests are ties."""
    return ties_of_result(arguments, verify_seeded(**arguments, backend=backend))


def ties_of_result(arguments: dict[str, Any], result: tuple[torch.Tensor, torch.Tensor]) -> int:
    """Fail unless a result is the reference's up to rounding; return how many requests are ties."""
    right, counts = verify_seeded(**arguments, backend="reference")
    tokens, num_tokens = result
    assert tokens.dtype == num_tokens.dtype == torch.int32
    ties = 0
    for request in range(counts.shape[0]):
        differs = (tokens[request] != right[request]).nonzero()
        if not len(differs):
            assert num_tokens[request] == counts[request]
            continue
        place = int(differs[0, 0])
        assert is_tie(arguments, request, place, int(tokens[request, place]))
        ties += 1
    return ties
