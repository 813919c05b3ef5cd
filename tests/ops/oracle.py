"""The verification ops once more: slow, in plain Python, one request at a time."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Sampling:
    """Sampling parameters of one request; the defaults leave the distribution alone."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0


@dataclass(frozen=True)
class Request:
    """One request's share of a batch."""

    rows: list[list[float]]
    drafts: list[int]
    sampling: Sampling
    draft_probs: list[list[float]] | None
    accept: list[float]
    sample: float
    rule: str = "token"


def argmax(row: list[float]) -> int:
    """Return the lowest index of the largest value; a NaN counts as -inf."""
    best = 0
    for token, value in enumerate(row):
        if not math.isnan(value) and value > without_nan(row[best]):
            best = token
    return best


def without_nan(value: float) -> float:
    return -math.inf if math.isnan(value) else value


def softmax(scores: list[float]) -> list[float]:
    peak = max(scores)
    weights = [math.exp(score - peak) for score in scores]
    return normalised(weights)


def normalised(weights: list[float]) -> list[float]:
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def target_distribution(row: list[float], sampling: Sampling) -> list[float]:
    """Temperature, min-p, top-k, top-p, in vLLM's order, straight from their definitions."""
    scores = [without_nan(value) / (sampling.temperature or 1.0) for value in row]
    if all(score == -math.inf for score in scores):
        return one_hot(0, len(row))
    if math.inf in scores:
        scores = [0.0 if score == math.inf else -math.inf for score in scores]
    probs = softmax(scores)
    if sampling.min_p > 0:
        floor = sampling.min_p * max(probs)
        probs = normalised([p if p >= floor else 0.0 for p in probs])
    if 0 < sampling.top_k < len(row):
        kth = sorted(probs, reverse=True)[sampling.top_k - 1]
        probs = normalised([p if p >= kth else 0.0 for p in probs])
    if sampling.top_p < 1:
        kept = [math.fsum(q for q in probs if q > p) < sampling.top_p for p in probs]
        probs = normalised([p if keep else 0.0 for p, keep in zip(probs, kept, strict=True)])
    return probs


def draw(weights: list[float], uniform: float) -> int:
    """Invert the cumulative distribution in the order of the vocabulary."""
    goal = uniform * math.fsum(weights)
    reached = 0.0
    for token, weight in enumerate(weights):
        reached += weight
        if reached > goal:
            return token
    return max(token for token, weight in enumerate(weights) if weight > 0)


def residual(p: list[float], q: list[float]) -> list[float]:
    return [max(a - b, 0.0) for a, b in zip(p, q, strict=True)]


def draw_correction(p: list[float], q: list[float], uniform: float, weight: float = 1.0) -> int:
    """Draw the token that replaces a rejected draft; if nothing is left of p, from p itself."""
    rest = residual([weight * a for a in p], q)
    return draw(rest if any(rest) else p, uniform)


def one_hot(token: int, size: int) -> list[float]:
    return [float(index == token) for index in range(size)]


def verify(request: Request) -> list[int]:
    """Return the tokens that one request puts out."""
    if request.sampling.temperature == 0:
        return verify_greedily(request)
    return {"token": verify_by_token, "block": verify_by_block}[request.rule](request)


def verify_greedily(request: Request) -> list[int]:
    """Accept drafts that are the argmax."""
    output: list[int] = []
    for row, draft in itertools.zip_longest(request.rows, request.drafts):
        output.append(argmax(row))
        if output[-1] != draft:
            break
    return output


def verify_by_token(request: Request) -> list[int]:
    """Accept drafts one after the other (Leviathan et al., 2211.17192, algorithm 1)."""
    output: list[int] = []
    drafts = proposed(request.drafts, request.draft_probs)
    for position, row in enumerate(request.rows):
        draft = drafts[position] if position < len(drafts) else None
        p = target_distribution(row, request.sampling)
        if draft is None or draft == -1:
            return [*output, draw(p, request.sample)]
        q = draft_distribution(request, position)
        # 0 times an infinite q is NaN, which rejects.
        if not request.accept[position] * q[draft] < p[draft]:
            return [*output, draw_correction(p, q, request.sample)]
        output.append(draft)
    raise AssertionError("the bonus row always ends the output")


def verify_by_block(request: Request) -> list[int]:
    """Accept drafts together (Sun et al., 2403.10444, algorithm 2), in the paper's own terms."""
    drafts = proposed(request.drafts, request.draft_probs)
    block = list(itertools.takewhile(lambda draft: draft != -1, drafts))
    gamma = len(block)
    target = [target_distribution(row, request.sampling) for row in request.rows[: gamma + 1]]
    draft = [draft_distribution(request, position) for position in range(gamma)]
    weights = block_weights(block, target, draft)
    tau = 0
    for i in range(1, gamma + 1):
        chance = weights[i]
        if i < gamma:
            chance = block_chance(weights[i], target[i], draft[i])
        # The uniform is in [0, 1): a chance of 0 must not win.
        if request.accept[i - 1] < chance:
            tau = i
    if tau == gamma:
        return [*block, draw(target[gamma], request.sample)]
    return [*block[:tau], draw_correction(target[tau], draft[tau], request.sample, weights[tau])]


def block_weights(
    block: list[int], target: list[list[float]], draft: list[list[float]]
) -> list[float]:
    """Return the paper's p_0 ... p_gamma: how much of the drafts' probability is the target's."""
    weights = [1.0]
    for token, p, q in zip(block, target, draft, strict=False):
        # Divided last, for q may be 0.
        scaled = weights[-1] * p[token]
        weights.append(0.0 if scaled == 0 else 1.0 if scaled >= q[token] else scaled / q[token])
    return weights


def block_chance(weight: float, p: list[float], q: list[float]) -> float:
    """Return h_i: the chance that i drafts are accepted if no more of them are."""
    if weight == 1:
        return 1.0
    rest = math.fsum(residual([weight * a for a in p], q))
    return rest / (rest + 1 - weight)


def draft_distribution(request: Request, position: int) -> list[float]:
    if request.draft_probs is None:
        return one_hot(request.drafts[position], len(request.rows[position]))
    return [q if q > 0 else 0.0 for q in request.draft_probs[position]]


def proposed(drafts: list[int], draft_probs: list[list[float]] | None) -> list[int]:
    """Return the drafts, -1 for each whose own probability is NaN."""
    if draft_probs is None:
        return drafts
    pairs = zip(drafts, draft_probs, strict=True)
    return [-1 if draft >= 0 and math.isnan(q[draft]) else draft for draft, q in pairs]


def split(arguments: dict[str, Any]) -> list[Request]:
    """Cut the arguments of ``verify_sample`` into requests."""
    ends = arguments["cu_num_draft_tokens"].tolist()
    starts = [0, *ends[:-1]]
    drafts = arguments["draft_token_ids"].tolist()
    logits = arguments["logits"].float().tolist()
    probs = arguments.get("draft_probs")
    accept = arguments["accept_uniform"].tolist()

    def parameter(name: str, request: int, default: float) -> float:
        values = arguments.get(name)
        return default if values is None else values[request].item()

    return [
        Request(
            rows=logits[start + index : end + index + 1],
            drafts=drafts[start:end],
            sampling=Sampling(
                temperature=arguments["temperature"][index].item(),
                top_k=int(parameter("top_k", index, 0)),
                top_p=parameter("top_p", index, 1.0),
                min_p=parameter("min_p", index, 0.0),
            ),
            draft_probs=None if probs is None else probs[start:end].tolist(),
            accept=accept[start:end],
            sample=arguments["sample_uniform"][index].item(),
            rule=arguments.get("rule", "token"),
        )
        for index, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]


def expected(arguments: dict[str, Any]) -> tuple[list[list[int]], list[int]]:
    """Return what ``verify_sample`` must return for ``arguments``, as lists."""
    width = arguments["max_draft_len"] + 1
    outputs = [verify(request) for request in split(arguments)]
    return [row + [-1] * (width - len(row)) for row in outputs], [len(row) for row in outputs]


def expected_greedy(
    logits: torch.Tensor, drafts: torch.Tensor, cu: torch.Tensor, max_draft_len: int
) -> tuple[list[list[int]], list[int]]:
    """Return what ``verify_greedy`` must return, as lists."""
    num_reqs = cu.shape[0]
    return expected(
        {
            "logits": logits,
            "draft_token_ids": drafts,
            "cu_num_draft_tokens": cu,
            "max_draft_len": max_draft_len,
            "temperature": torch.zeros(num_reqs),
            "accept_uniform": torch.zeros(drafts.shape[0]),
            "sample_uniform": torch.zeros(num_reqs),
        }
    )
