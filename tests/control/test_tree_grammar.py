"""Each row of a tree has the mask of its path, and a tree ends after its last allowed draft."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import DraftTokenIds

from vllm_ascend_spec.config.draft_tree import attach_parents
from vllm_ascend_spec.control.tree_grammar import RULED_OUT, TreeGrammarMixin, paths_of

ANYTHING = -7


class CountingGrammar:
    """A manager like vLLM's, whose grammar allows 1, 2 or 3 more than the token before.

    The text ends with 0. The mask of a row shows the token before it.
    """

    def validate_tokens(self, request: Any, tokens: list[int]) -> list[int]:
        before = [0, *tokens]
        steps = [after - last for last, after in zip(before, tokens, strict=False)]
        wrong = (place for place, step in enumerate(steps) if step not in {1, 2, 3})
        return tokens[: next(wrong, len(tokens))] if request.use_structured_output else tokens

    def grammar_bitmask(
        self, requests: Any, req_ids: list[str], drafts: dict[str, list[int]]
    ) -> np.ndarray:
        rows = []
        for req_id in req_ids:
            assert requests[req_id].use_structured_output
            text = [0, *drafts.get(req_id, [])]
            ruled_out = text.index(RULED_OUT) if RULED_OUT in text else len(text)
            rows += text[:ruled_out] + [ANYTHING] * (len(text) - ruled_out)
        return np.array(rows, np.int32)[:, None]


class VllmScheduler:
    """What vLLM's scheduler does with drafts."""

    update_draft_token_ids = Scheduler.update_draft_token_ids
    update_draft_token_ids_in_output = Scheduler.update_draft_token_ids_in_output
    get_grammar_bitmask = Scheduler.get_grammar_bitmask


class Both(TreeGrammarMixin, VllmScheduler):
    """Ours on top of it."""


def request(req_id: str, **more: Any) -> Any:
    known = {"use_structured_output": True, "is_prefill_chunk": False, **more}
    return SimpleNamespace(request_id=req_id, spec_token_ids=[], is_finished=lambda: False, **known)


def scheduler_of(*requests: Any) -> Any:
    scheduler: Any = Both()
    scheduler.structured_output_manager = CountingGrammar()
    scheduler.requests = {each.request_id: each for each in requests}
    return scheduler


def drafts_of(**trees: tuple[list[int], list[int]]) -> DraftTokenIds:
    """Return drafts with their parents, by request."""
    drafts = DraftTokenIds(list(trees), [list(tokens) for tokens, _ in trees.values()])
    attach_parents(drafts, [parents for _, parents in trees.values()])
    return drafts


def step(scheduler: Any, drafts: dict[str, list[int]]) -> SchedulerOutput:
    output = SchedulerOutput.make_empty()
    output.num_scheduled_tokens = dict.fromkeys(scheduler.requests, 1)
    output.scheduled_spec_decode_tokens = drafts
    output.has_structured_output_requests = True
    return output


def masks_by_definition(tokens: list[int], parents: list[int]) -> list[int]:
    """Return what each row shows: its token where the whole path to it is allowed."""
    found, allowed = [0], []
    for token, parent in zip(tokens, parents, strict=True):
        before = 0 if parent < 0 else tokens[parent]
        allowed.append((parent < 0 or allowed[parent]) and token - before in {1, 2, 3})
        found.append(token if allowed[-1] else ANYTHING)
    return found


@given(st.data())
def test_masks_follow_paths(data: st.DataObject) -> None:
    """Beside a request with a chain, and one without a grammar."""
    size = data.draw(st.integers(0, 8))
    parents = [data.draw(st.integers(-1, node - 1)) for node in range(size)]
    tokens: list[int] = []
    for parent in parents:
        tokens.append((tokens[parent] if parent >= 0 else 0) + data.draw(st.integers(1, 5)))
    scheduler = scheduler_of(request("tree"), request("chain"), request("free"))
    scheduler.requests["free"].use_structured_output = False
    chain, free = ([2, 4, 9], [-1, 0, 1]), ([50, 60], [-1, -1])
    scheduler.update_draft_token_ids(drafts_of(tree=(tokens, parents), chain=chain, free=free))
    kept = {each.request_id: each.spec_token_ids for each in scheduler.requests.values()}
    expected = masks_by_definition(tokens, parents)
    last = max((row for row in range(size + 1) if expected[row] != ANYTHING), default=0)
    assert kept == {"tree": tokens[:last], "chain": [2, 4], "free": [50, 60]}
    output = scheduler.get_grammar_bitmask(step(scheduler, kept))
    assert output.structured_output_request_ids == ["tree", "chain"]
    assert output.grammar_bitmask[:, 0].tolist() == [*expected[: last + 1], 0, 2, 4]


def test_places_that_were_scheduled_ahead_are_filled() -> None:
    """With asynchronous scheduling rows are planned before the drafts are known."""
    scheduler = scheduler_of(request("a"), request("b"))
    output = step(scheduler, {"a": [RULED_OUT] * 5, "b": [RULED_OUT] * 3})
    tree = ([1, 9, 2, 3, 50], [-1, -1, -1, 0, 3])
    scheduler.update_draft_token_ids_in_output(drafts_of(a=tree, b=([1, 2, 3], [-1, 0, 1])), output)
    assert output.scheduled_spec_decode_tokens == {"a": [1, 9, 2, 3, RULED_OUT], "b": [1, 2, 3]}
    assert output.num_invalid_spec_tokens == {"a": 1}
    masks = scheduler.get_grammar_bitmask(output).grammar_bitmask[:, 0].tolist()
    assert masks == [0, 1, ANYTHING, 2, 3, ANYTHING, 0, 1, 2, 3]


@pytest.mark.parametrize(
    "chains", [drafts_of(a=([1, 4], [-1, 0])), DraftTokenIds(["a"], [[1, 4]])], ids=["told", "not"]
)
def test_a_tree_is_forgotten_when_a_chain_follows(chains: DraftTokenIds) -> None:
    """Also where nothing is said, as in a step of chains alone."""
    scheduler = scheduler_of(request("a"))
    scheduler.update_draft_token_ids(drafts_of(a=([1, 2], [-1, -1])))
    assert scheduler.requests["a"].spec_token_ids == [1, 2]
    scheduler.update_draft_token_ids(chains)
    masks = scheduler.get_grammar_bitmask(step(scheduler, {"a": [1, 4]}))
    assert masks.grammar_bitmask[:, 0].tolist() == [0, 1, 4]


def test_drafts_of_a_padded_batch() -> None:
    """vllm-ascend has drafts for more requests than there are where a full graph has their rows."""
    scheduler = scheduler_of(request("a"))
    drafts = drafts_of(a=([1, 2], [-1, -1]))
    drafts.draft_token_ids.append([0, 0])
    scheduler.update_draft_token_ids(drafts)
    scheduler.update_draft_token_ids(DraftTokenIds(["a"], [[1, 2], [0, 0]]))
    assert scheduler.requests["a"].spec_token_ids == [1, 2]


@pytest.mark.parametrize("state", [{"is_prefill_chunk": True}, {"is_finished": lambda: True}])
def test_requests_that_take_no_drafts(state: dict[str, Any]) -> None:
    asked = request("a")
    vars(asked).update(state)
    scheduler = scheduler_of(asked)
    scheduler.update_draft_token_ids(drafts_of(a=([1, 2], [-1, -1]), gone=([1, 2], [-1, -1])))
    assert not asked.spec_token_ids


def test_paths() -> None:
    assert [*paths_of([-1, 0, 1, -1, 0])] == [[0, 1, 2], [3], [0, 4]]
    assert not [*paths_of([])]
