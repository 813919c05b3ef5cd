"""Cases whose numbers lie close to the op's thresholds, but too far for rounding to matter.

Of random uniforms one in a thousand shows an error of a thousandth; of these, all do. A backend
whose numbers are off by more than ``NEAR`` - 1 leeways decides differently from the reference
without the excuse of a tie.
"""

from __future__ import annotations

import torch

from tests.ops.batches import Arguments
from tests.ops.cases import Numbers
from tests.ops.parity import cut_out
from tests.ops.rounding import EPSILON, Decision, LastToken, Request, Span, decisions, last_tokens
from vllm_ascend_spec.ops import verify_sample

# Distance of the uniforms from the thresholds, in leeways of the judge (2e-6 of the mass).
NEAR = 3.0


def sharpen(arguments: Arguments, seed: int) -> Arguments:
    """Return the case with each sampled request's numbers beside thresholds of the reference.

    Args:
        arguments: of ``verify_sample``.
        seed: chooses the side of each threshold, and the tokens that it is a threshold of.
    """
    numbers = Numbers(seed)
    names = ("top_p", "min_p", "accept_uniform", "sample_uniform")
    sharp = {name: arguments[name].clone() for name in names if name in arguments}
    sharpened = {**arguments, **sharp}
    sampled = [i for i, t in enumerate(arguments["temperature"].tolist()) if t > 0]
    for index in sampled:
        _sharpen_filters(sharpened, index, numbers)
    ends = [0, *arguments["cu_num_draft_tokens"].tolist()]
    # Neither a row nor a weight depends on the uniforms.
    requests = [cut_out(sharpened, index) for index in sampled]
    found = [decisions(request) for request in requests]
    for index, each in zip(sampled, found, strict=True):
        for position, decision in enumerate(each):
            sharp["accept_uniform"][ends[index] + position] = _beside_threshold(decision, numbers)
    _, counts = verify_sample(**{**sharpened, "backend": "reference"})
    for index, request, each in zip(sampled, requests, found, strict=True):
        source = _source(request, each, int(counts[index]) - 1)
        sharp["sample_uniform"][index] = _beside_cut(source, request.sample, numbers)
    return sharpened


def _sharpen_filters(arguments: Arguments, index: int, numbers: Numbers) -> None:
    """Move a request's min-p, then its top-p, beside a threshold of its first row."""
    for name in ("min_p", "top_p"):
        if name not in arguments or numbers.happens(0.3):
            continue
        unfiltered = {"min_p": ("min_p", "top_p"), "top_p": ("top_p",)}[name]
        probs = cut_out({**arguments, **dict.fromkeys(unfiltered)}, index).row(0).variants[0]
        levels = probs.unique()
        level = levels[numbers.integer(0, len(levels) - 1)]
        threshold = level / probs.max() if name == "min_p" else probs[probs >= level].sum()
        move = NEAR * EPSILON * (1 if numbers.happens(0.5) else -1)
        if 10 * EPSILON < threshold < 1 - 10 * EPSILON:
            arguments[name][index] = threshold + move


def _beside_threshold(decision: Decision, numbers: Numbers) -> float:
    move = NEAR * max(decision.leeway.low, decision.leeway.high)
    threshold = decision.threshold.high + (move if numbers.happens(0.5) else -move)
    return threshold if 0 <= threshold < 1 else decision.uniform


def _source(request: Request, found: list[Decision], num_accepted: int) -> LastToken:
    weight = Span(1.0, 1.0)
    if num_accepted:
        weight = found[num_accepted - 1].weight
    return next(last_tokens(request, num_accepted, weight))


def _beside_cut(source: LastToken, uniform: float, numbers: Numbers) -> float:
    """Return a uniform beside the end of a token that has more weight than the distance."""
    total = float(source.weights.sum())
    move = NEAR * source.leeway
    heavy = torch.nonzero(source.weights > 2 * move)[:, 0].tolist()
    if total <= 0 or not heavy:
        return uniform
    token = numbers.pick(tuple(heavy))
    reached = float(source.weights[: token + 1].sum())
    uniform = (reached + (move if numbers.happens(0.5) else -move)) / total
    return uniform if 0 <= uniform < 1 else (reached - move) / total
