"""What the measured figures say: which head to serve, with how many drafts, and whether it pays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import mean
from typing import Any

from vllm_ascend_spec.control.cost_model import MIN_MEASUREMENTS, CostModel
from vllm_ascend_spec.training.contenders import (
    CONTENDERS,
    FROM,
    HEAD,
    NONE,
    SUFFIX,
    SUFFIX_DRAFTS,
)
from vllm_ascend_spec.training.measure import GREEDY, REQUESTS

Results = Mapping[str, Mapping[str, Mapping[str, Any]]]
WIDTH = 16
# Heads, as sentences call them.
HEADS: Mapping[str, str] = {HEAD: "the new head", FROM: "the head of --from"}


def kept(results: Results) -> str:
    """Return which head to serve: the new one, unless it is worse than what it began with.

    Greedy requests and those that sample count alike.
    """
    if FROM not in results:
        return HEAD
    return HEAD if _overall(results, HEAD) >= _overall(results, FROM) else FROM


def best_k(drafting: Mapping[str, Any], plain: Mapping[str, Any], requests: int) -> int:
    """Return how many drafts per step give most tokens per second, 1 or more.

    The times of a step without drafts and with the most were measured; those between follow from
    the cost model that also serves ``draft_length: adaptive``.

    Args:
        drafting: what was measured with the most drafts.
        plain: the same without speculation.
        requests: how many ran at once.
    """
    rates = list(drafting["per_position"])
    costs = CostModel()
    for drafts, found in ((0, plain), (len(rates), drafting)):
        for _ in range(MIN_MEASUREMENTS):
            costs.note(requests, drafts, found["seconds"] * requests / max(found["steps"], 1))

    def speed(drafts: int) -> float:
        seconds = costs.seconds(requests, drafts)
        return (1 + sum(rates[:drafts])) / seconds if seconds else 0.0

    return max(range(1, len(rates) + 1), key=speed, default=1)


def same_texts(results: Results) -> dict[str, dict[str, int]]:
    """Return how many answers of each contender are those without speculation, token by token."""
    return {
        name: {
            kind: sum(
                mine == plain
                for mine, plain in zip(
                    found[kind]["answers"], results[NONE][kind]["answers"], strict=True
                )
            )
            for kind in REQUESTS
        }
        for name, found in results.items()
        if name != NONE
    }


def table(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a small table of a report."""
    yield (
        f"{'':{WIDTH}} "
        + " ".join(f"{f'tokens/step {kind}':>20}" for kind in REQUESTS)
        + (f" {'tokens/s greedy':>16}  accepted by position, greedy")
    )
    for name in reversed([*CONTENDERS]):
        found = report["results"].get(name)
        if found is None:
            continue
        figures = " ".join(f"{found[kind]['tokens_per_step']:20.2f}" for kind in REQUESTS)
        shares = " ".join(f"{share:.0%}" for share in found[GREEDY]["per_position"])
        speed = f"{found[GREEDY]['tokens_per_second']:16,.0f}"
        yield f"{CONTENDERS[name].title:{WIDTH}} {figures} {speed}  {shares}".rstrip()


def remarks(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the reader of a report should know."""
    results = report["results"]
    count = report["prompts"]
    for name, said in report["left_out"].items():
        yield f"{CONTENDERS[name].title} was not measured: {said}"
    same = report["same_texts"][HEAD]
    told = ", ".join(f"{same[kind]} of {count} {kind}" for kind in REQUESTS)
    yield f"answers equal to those without speculation, token by token: {told}"
    if FROM in results:
        yield _beside_from(report)
    if SUFFIX in results and _overall(results, report["kept"]) <= _overall(results, SUFFIX):
        yield _beside_suffix(results, report["kept"])
    if report["speedup"] <= 1:
        yield (
            f"speculation does not pay here with {report['requests_at_once']} requests at once: "
            f"{report['speedup']:.2f} times the tokens/s without it, greedy"
        )


def _beside_from(report: Mapping[str, Any]) -> str:
    results = report["results"]
    changes = []
    for kind in REQUESTS:
        new, old = _tokens(results, HEAD, kind), _tokens(results, FROM, kind)
        changes.append(f"{new / old - 1:+.1%} {kind} ({new:.2f}, before {old:.2f})")
    told = f"{', '.join(changes)} tokens per step on the held-out prompts"
    if report["kept"] == FROM:
        return f"the new head is worse, so the one of --from is kept: {told}"
    return f"the new head beside the one of --from: {told}"


def _beside_suffix(results: Results, head: str) -> str:
    figures = ", ".join(
        f"{_tokens(results, head, kind):.2f} and {_tokens(results, SUFFIX, kind):.2f} {kind}"
        for kind in REQUESTS
    )
    return (
        f"{HEADS[head]} does not pay beside suffix, which needs no training: {figures} tokens per "
        f"step; train for more steps or on more prompts, or serve with method suffix and "
        f"num_speculative_tokens {SUFFIX_DRAFTS}"
    )


def _overall(results: Results, name: str) -> float:
    return mean(_tokens(results, name, kind) for kind in REQUESTS)


def _tokens(results: Results, name: str, kind: str) -> float:
    return float(results[name][kind]["tokens_per_step"])
