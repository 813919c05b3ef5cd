"""Describe an engine step: whether a graph was replayed, why not, and the shape of the batch.

The description travels from the worker to the front end in vLLM's text for a step's graph mode
(``vllm/compilation/cuda_graph.py:CUDAGraphStat``), so it needs no message of its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# Name of the counter of steps.
METRIC = "vllm:spec_decode_graph_steps"
# Name of the counter of steps in which a model drafted.
DRAFT_METRIC = "vllm:spec_decode_draft_graph_steps"
NO_GRAPH = "NONE"
# Why a step has no graph.
PROMPTS = "prompts in the batch"
UNEVEN = "drafts of different lengths"
WIDE = "wider than the largest graph"
OTHER_K = "no graph for this many drafts"
OTHER = "not possible in this step"
REASONS = (PROMPTS, UNEVEN, WIDE, OTHER_K, OTHER)

_TEXT = re.compile(
    r"(?P<graph>[A-Z]+)(?:, K=(?P<k>\d+))?(?:, draft before (?P<draft>[A-Z]+))?"
    r"(?:: (?P<reason>.+))?"
)


@dataclass(frozen=True)
class GraphStep:
    """The graph and the batch of one step.

    Attributes:
        graph: ``FULL``, ``PIECEWISE`` or ``NONE``.
        drafts: K of a decode batch in which all requests have K drafts; None for other batches.
        reason: one of :data:`REASONS` without a graph, else empty.
        draft: the same as ``graph`` for draft step 1 of the previous step; empty where no draft
            model ran.
    """

    graph: str
    drafts: int | None = None
    reason: str = ""
    draft: str = ""

    def __str__(self) -> str:
        """Return the text that is sent."""
        drafts = "" if self.drafts is None else f", K={self.drafts}"
        draft = f", draft before {self.draft}" if self.draft else ""
        return f"{self.graph}{drafts}{draft}{f': {self.reason}' if self.reason else ''}"

    @classmethod
    def parse(cls, text: str) -> GraphStep | None:
        """Parse a text; None if it is neither ours nor vLLM's."""
        found = _TEXT.fullmatch(text)
        if found is None:
            return None
        drafts = None if found["k"] is None else int(found["k"])
        return cls(found["graph"], drafts, found["reason"] or "", found["draft"] or "")


def step_of(
    graph: str,
    *,
    num_tokens: int,
    num_reqs: int,
    longest: int,
    has_prompts: bool,
    num_drafts: int,
    largest: int,
) -> GraphStep:
    """Return the description of a step.

    Args:
        graph: name of the graph mode that vLLM chose for it.
        num_tokens: number of tokens in the batch, without padding.
        num_reqs: number of requests in the batch.
        longest: tokens in this step of the request that has most.
        has_prompts: whether the batch includes prefill.
        num_drafts: K that full decode graphs are for.
        largest: tokens of the largest graph.
    """
    is_decode = not has_prompts and longest <= num_drafts + 1
    is_even = is_decode and num_tokens == longest * num_reqs
    drafts = longest - 1 if is_even else None
    if graph != NO_GRAPH:
        return GraphStep(graph, drafts)
    if not is_decode:
        return GraphStep(graph, None, PROMPTS)
    if num_tokens > largest:
        return GraphStep(graph, drafts, WIDE)
    if not is_even:
        return GraphStep(graph, None, UNEVEN)
    return GraphStep(graph, drafts, OTHER if drafts == num_drafts else OTHER_K)
