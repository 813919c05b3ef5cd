"""Describe which graph a step replayed, and if none, why."""

from __future__ import annotations

from vllm_ascend_spec.step_report import (
    NO_GRAPH,
    OTHER,
    OTHER_K,
    PROMPTS,
    UNEVEN,
    WIDE,
    StepReport,
)


def describe_graph(
    graph: str,
    *,
    num_tokens: int,
    num_reqs: int,
    longest: int,
    has_prompts: bool,
    graph_k: int,
    largest: int,
) -> StepReport:
    """Return a report with the step's graph and batch filled in.

    Args:
        graph: name of the graph mode that vLLM chose for the step.
        num_tokens: number of tokens in the batch, without padding.
        num_reqs: number of requests in the batch.
        longest: tokens in this step of the request that has most.
        has_prompts: whether the batch includes prefill.
        graph_k: K that full decode graphs are for.
        largest: tokens of the largest graph.
    """
    is_decode = not has_prompts and longest <= graph_k + 1
    is_even = is_decode and num_tokens == longest * num_reqs
    batch_k = longest - 1 if is_even else None
    reason = ""
    if graph != NO_GRAPH:
        pass
    elif not is_decode:
        reason = PROMPTS
    elif num_tokens > largest:
        reason = WIDE
    elif not is_even:
        reason = UNEVEN
    else:
        reason = OTHER if batch_k == graph_k else OTHER_K
    return StepReport(graph=graph, batch_k=batch_k, no_graph_reason=reason)
