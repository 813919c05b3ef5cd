"""What worker and scheduler report of a step to the metrics, as one record.

vLLM sends one text with each step's statistics: the graph mode
(``vllm/compilation/cuda_graph.py:CUDAGraphStat.runtime_mode``). The record travels in its place, as
JSON, so it needs no message of its own: the worker fills the first half in, the scheduler the
second half, and ``hooks/stats_hook.py`` takes it out and gives vLLM its own text back. The other
fields of ``SchedulerStats`` are no better: vLLM reads each of them itself.
"""

from __future__ import annotations

import msgspec

# Why a step has no graph.
PROMPTS = "prompts in the batch"
UNEVEN = "drafts of different lengths"
WIDE = "wider than the largest graph"
OTHER_K = "no graph for this many drafts"
OTHER = "not possible in this step"
NO_GRAPH_REASONS = (PROMPTS, UNEVEN, WIDE, OTHER_K, OTHER)
NO_GRAPH = "NONE"

# Why a step has its K, in addition to the reasons of control/adaptive_k.py.
FIXED, SCHEDULED = "fixed", "scheduled"
# Why a step makes no drafts where K is chosen.
REJECTED, COSTLY, PAST = "hardly accepted", "does not pay", "past the draft's context"


class TreeCounts(msgspec.Struct, omit_defaults=True):
    """Verified trees of drafts; a request's drafts are one if they may not be a chain.

    Attributes:
        verified: number of trees.
        drafts: number of their drafts.
        accepted: sum of the lengths of the accepted paths.
        known: number of trees whose drafts the scheduler knows: all with synchronous scheduling.
        left: number of these whose accepted path left the principal chain.
    """

    verified: int = 0
    drafts: int = 0
    accepted: int = 0
    known: int = 0
    left: int = 0

    def note(self, drafts: int, accepted: int, on_chain: int | None) -> None:
        """Count a tree.

        Args:
            drafts: number of its drafts.
            accepted: length of the accepted path.
            on_chain: how many of its nodes are on the principal chain; None if not known.
        """
        self.verified += 1
        self.drafts += drafts
        self.accepted += accepted
        if on_chain is not None:
            self.known += 1
            self.left += accepted > on_chain


class StepReport(msgspec.Struct, omit_defaults=True):
    """The report of a step.

    Attributes:
        graph: filled in by the worker, like all up to ``drafting_us``: ``FULL``, ``PIECEWISE`` or
            ``NONE``; empty from a worker without graphs.
        batch_k: number of drafts of each request, if the batch only decodes and all have equally
            many; None for other batches.
        no_graph_reason: one of :data:`NO_GRAPH_REASONS` without a graph.
        draft_graph: the same as ``graph``, for draft step 1 of the previous step; empty where no
            draft model ran.
        step_us: microseconds of the host in the model runner since its last report, one or more
            steps ago. An accelerator may still work when the host goes on.
        verification_us: of these, in structured-output masks, sampling and verification.
        drafting_us: of these, in making drafts.
        tree_depth: sum of the depths of trees that were verified since the last report.
        k: filled in by the scheduler, like all that follow: the number of drafts that the step
            makes for each request; None from an engine without our scheduler.
        k_reason: the reason for this K.
        method: the drafting method.
        verified: by number of drafts of a request, the number of requests and of their accepted
            drafts since the last report.
        trees: trees that were verified since the last report; None for none.
        is_low: whether drafts are hardly accepted.
        alarms: how often acceptance became low since the last report.
        is_paused: whether drafting is paused because it does not pay.
        pauses: how often drafting was paused since the last report.
    """

    graph: str = ""
    batch_k: int | None = None
    no_graph_reason: str = ""
    draft_graph: str = ""
    step_us: int = 0
    verification_us: int = 0
    drafting_us: int = 0
    tree_depth: int = 0
    k: int | None = None
    k_reason: str = ""
    method: str = ""
    verified: dict[int, tuple[int, int]] = {}
    trees: TreeCounts | None = None
    is_low: bool = False
    alarms: int = 0
    is_paused: bool = False
    pauses: int = 0

    def encode(self) -> str:
        """Return the text that travels."""
        return _ENCODER.encode(self).decode()

    @classmethod
    def parse(cls, text: str) -> StepReport:
        """Parse a report's text; vLLM's own text only names the graph."""
        return _DECODER.decode(text) if text.startswith("{") else cls(graph=text)


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(StepReport)
