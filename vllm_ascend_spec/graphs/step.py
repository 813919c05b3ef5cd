"""A step of the engine, as far as graphs go: replayed or not, why not, and what batch it was.

It travels from the worker to the front end in the text that vLLM has for the mode of a step
(``vllm/compilation/cuda_graph.py:CUDAGraphStat``), so nothing of ours has to be sent.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# Of the counter that steps come to.
METRIC = "vllm:spec_decode_graph_steps"
# Of the counter that the drafts of steps come to.
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
class Step:
    """What became of one step.

    Attributes:
        graph: ``FULL``, ``PIECEWISE`` or ``NONE``.
        drafts: K of a decode batch in which all requests have as many; None for other batches.
        reason: one of :data:`REASONS` without a graph, else empty.
        draft: as ``graph``, of a draft model's first pass in the step before; empty where no draft
            model ran.
    """

    graph: str
    drafts: int | None = None
    reason: str = ""
    draft: str = ""

    def __str__(self) -> str:
        """Return the text that travels."""
        drafts = "" if self.drafts is None else f", K={self.drafts}"
        draft = f", draft before {self.draft}" if self.draft else ""
        return f"{self.graph}{drafts}{draft}{f': {self.reason}' if self.reason else ''}"

    @classmethod
    def parse(cls, text: str) -> Step | None:
        """Return what a text says; None for one that is not ours or vLLM's."""
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
) -> Step:
    """Return what became of a step.

    Args:
        graph: that vLLM chose for it, by name.
        num_tokens: of the batch, without padding.
        num_reqs: of the batch.
        longest: tokens of its longest request.
        has_prompts: whether a prompt is still being read.
        num_drafts: K that graphs of whole decode batches are for.
        largest: tokens of the largest graph.
    """
    is_decode = not has_prompts and longest <= num_drafts + 1
    is_even = is_decode and num_tokens == longest * num_reqs
    drafts = longest - 1 if is_even else None
    if graph != NO_GRAPH:
        return Step(graph, drafts)
    if not is_decode:
        return Step(graph, None, PROMPTS)
    if num_tokens > largest:
        return Step(graph, drafts, WIDE)
    if not is_even:
        return Step(graph, None, UNEVEN)
    return Step(graph, drafts, OTHER if drafts == num_drafts else OTHER_K)
