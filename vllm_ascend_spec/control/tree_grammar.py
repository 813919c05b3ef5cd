"""Structured output beside trees of drafts: a grammar follows each path.

vLLM's structured output manager reads a request's drafts as one text. So it is asked path by path,
and each row of a tree gets the mask that it has in its path.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from vllm.v1.core.sched.output import GrammarOutput

from vllm_ascend_spec.config.draft_tree import parents_beside
from vllm_ascend_spec.upstream.scheduler import allowed_drafts

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.outputs import DraftTokenIds
    from vllm.v1.request import Request
    from vllm.v1.structured_output import StructuredOutputManager

# What vLLM writes in place of drafts that a grammar rules out.
RULED_OUT = -1


def paths_of(parents: Sequence[int]) -> Iterator[list[int]]:
    """Yield the nodes from the text's end to each leaf."""
    inner = set(parents)
    for leaf in range(len(parents)):
        if leaf in inner:
            continue
        path, node = [], leaf
        while node >= 0:
            path.append(node)
            node = parents[node]
        yield path[::-1]


class TreeGrammarMixin:
    """Mixin for a scheduler of vLLM, which it has to precede in the bases."""

    requests: dict[str, Request]
    structured_output_manager: StructuredOutputManager

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Parents of the drafts of requests with a grammar, by their ids, where they branch.
        self._branches: dict[str, Sequence[int]] = {}

    def update_draft_token_ids(self, draft_token_ids: DraftTokenIds) -> None:
        """Store new drafts; a tree ends after the last draft that its grammar allows."""
        super().update_draft_token_ids(draft_token_ids)  # type: ignore[misc]
        for request, drafts in self._trees_in(draft_token_ids, draft_token_ids.draft_token_ids):
            if not request.is_prefill_chunk:
                request.spec_token_ids = drafts[: self._num_allowed(request, drafts)]

    def update_draft_token_ids_in_output(
        self, draft_token_ids: DraftTokenIds, scheduler_output: SchedulerOutput
    ) -> None:
        """Put drafts in the places that were scheduled for them; the signature is vLLM's."""
        scheduled = scheduler_output.scheduled_spec_decode_tokens
        # vLLM changes the lists.
        given = [list(drafts) for drafts in draft_token_ids.draft_token_ids]
        super().update_draft_token_ids_in_output(  # type: ignore[misc]
            draft_token_ids, scheduler_output
        )
        invalid = scheduler_output.num_invalid_spec_tokens
        for request, drafts in self._trees_in(draft_token_ids, given):
            req_id = request.request_id
            if not (places := len(scheduled.get(req_id, ()))):
                continue
            allowed = self._num_allowed(request, drafts[:places])
            scheduled[req_id] = drafts[:allowed] + [RULED_OUT] * (places - allowed)
            invalid[req_id] = places - allowed

    def get_grammar_bitmask(self, scheduler_output: SchedulerOutput) -> GrammarOutput | None:
        """Return vLLM's masks; those of trees are put together from their paths.

        Args:
            scheduler_output: what the step verifies.
        """
        drafts = scheduler_output.scheduled_spec_decode_tokens
        if self._branches.keys().isdisjoint(drafts):
            return super().get_grammar_bitmask(scheduler_output)  # type: ignore[misc]
        # Which requests have a grammar; without drafts, as these are no text.
        asked = replace(scheduler_output, scheduled_spec_decode_tokens={})
        output: GrammarOutput | None = super().get_grammar_bitmask(asked)  # type: ignore[misc]
        if output is None:
            return None
        req_ids = output.structured_output_request_ids
        masks = [self._masks_of(self.requests[name], drafts.get(name, [])) for name in req_ids]
        return GrammarOutput(req_ids, np.concatenate(masks))

    def _trees_in(
        self, draft_token_ids: DraftTokenIds, given: Sequence[list[int]]
    ) -> Iterator[tuple[Request, list[int]]]:
        """Note how drafts hang together, and yield the requests with a grammar and a tree."""
        parents = parents_beside(draft_token_ids) or [()] * len(given)
        # A padded batch has drafts for more requests than there are.
        for req_id, drafts, own in zip(draft_token_ids.req_ids, given, parents, strict=False):
            self._branches.pop(req_id, None)
            if all(parent == node - 1 for node, parent in enumerate(own)):
                continue
            request = self.requests.get(req_id)
            if request and not request.is_finished() and request.use_structured_output:
                self._branches[req_id] = own
                yield request, drafts

    def _num_allowed(self, request: Request, drafts: list[int]) -> int:
        """Return how many drafts there are up to the last one that the grammar allows."""
        last = -1
        for path in paths_of(self._branches[request.request_id][: len(drafts)]):
            tokens = [drafts[node] for node in path]
            valid = allowed_drafts(self.structured_output_manager, request, tokens)
            last = max([last, *path[: len(valid)]])
        return last + 1

    def _masks_of(self, request: Request, drafts: list[int]) -> np.ndarray:
        """Return the masks of a request's rows, int32 [num_drafts + 1, vocab_size / 32]."""
        manager, req_id = self.structured_output_manager, request.request_id
        parents = self._branches.get(req_id, range(-1, len(drafts) - 1))[: len(drafts)]
        found: np.ndarray | None = None
        for path in [*paths_of(parents)] or [[]]:
            tokens = [drafts[node] for node in path]
            valid = allowed_drafts(manager, request, tokens)
            padded = valid + [RULED_OUT] * (len(tokens) - len(valid))
            masks = manager.grammar_bitmask(self.requests, [req_id], {req_id: padded})
            assert masks is not None
            if found is None:
                found = np.empty((len(drafts) + 1, masks.shape[1]), masks.dtype)
            found[[0, *(node + 1 for node in path)]] = masks
        assert found is not None
        return found
