"""``thinking_token_budget`` on the rows that verify drafts.

A budget limits the tokens that a request may write after the start of its reasoning; then the
closing string is forced, token by token. Whether a row is within reasoning, how much of the budget
is used and how far the closing string has got depend only on the tokens before the row, so each row
is judged by the output so far and the drafts before it. vLLM's own holder of budgets
(vllm/v1/sample/thinking_budget_state.py) judges a whole step at once: with drafts it lets requests
exceed their budgets and leaves closing strings incomplete.

What counts as reasoning is exactly what that holder counts without speculation, where it sees one
token at a time. That includes its peculiarities: it looks for markers only in the output since the
last thought's end, and after an end marker without a start it misses the next end marker.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from vllm.v1.sample.metadata import SamplingMetadata

from vllm_ascend_spec.ops.send import send

if TYPE_CHECKING:
    from vllm_ascend_spec.verification.rows import Rows

# The logit that vLLM gives a forced token.
FORCED = 1e9
# Marks a token that asynchronous scheduling has not yet copied to the host.
UNKNOWN = -1
# Key of a request's ``Thought`` in vLLM's record of its budget, which follows the request from slot
# to slot and is removed with it.
_KEY = "vllm_ascend_spec"


class Thought(NamedTuple):
    """State of a request's reasoning after some of its output.

    Attributes:
        length: output tokens so far.
        recent: last output tokens since the last thought's end, as many as the longer marker has.
        start: position in the output where the start marker begins, negative in the prompt.
        end: position of an end marker found since the last thought's end.
        closing: tokens of the closing string written so far; None while it is not being forced.
        left: tokens that may follow; vLLM's estimate, which is corrected before it runs out.
        counted: output tokens when ``left`` was last computed.
    """

    length: int
    recent: tuple[int, ...] = ()
    start: int | None = None
    end: int | None = None
    closing: int | None = None
    left: int = 0
    counted: int = 0


@dataclass(frozen=True)
class ThinkingBudget:
    """The budget of one request and the markers of the model's reasoning.

    Attributes:
        budget: tokens that may follow the start marker.
        start: token ids that begin a thought.
        end: token ids that end it, and are forced.
    """

    budget: int
    start: tuple[int, ...]
    end: tuple[int, ...]

    def begin(self, in_prompt: int | None) -> Thought:
        """Return the thought before any output.

        Args:
            in_prompt: tokens of a thought that the prompt leaves open, None if it leaves none.
        """
        if in_prompt is None:
            return Thought(0)
        left = self.budget - in_prompt
        start = -in_prompt - len(self.start)
        return Thought(0, start=start, closing=0 if left <= 0 else None, left=left)

    def advance(self, thought: Thought, token: int) -> Thought:
        """Return the thought after one more token."""
        length = thought.length + 1
        recent = (*thought.recent, token)[-max(len(self.start), len(self.end)) :]
        # If something else prevented the string's first token, it is forced again. The later tokens
        # are not checked, as vLLM does not check them.
        if thought.closing or (thought.closing == 0 and token == self.end[0]):
            closing = thought.closing + 1
            if closing == len(self.end):
                return Thought(length, counted=length)
            return thought._replace(length=length, recent=recent, closing=closing)
        start, end = thought.start, thought.end
        begins = start is None and _ends_with(recent, self.start)
        if begins:
            start = length - len(self.start)
        if end is None and _ends_with(recent, self.end):
            end = length - len(self.end)
        thought = thought._replace(length=length, recent=recent, start=start, end=end)
        return thought if start is None else self._spend(thought, start, begins)

    def _spend(self, thought: Thought, start: int, begins: bool) -> Thought:
        """Take the last token of a thought into account, which may end it or exhaust the budget."""
        length, end = thought.length, thought.end
        if end is not None and end > start:
            return Thought(length, counted=length if start < 0 else thought.counted)
        left = thought.left - 1
        if begins:
            left = self.budget - length + (thought.counted or len(self.start))
        if left > 0:
            return thought._replace(left=left, counted=length)
        if end == start:  # The start marker begins the end marker: vLLM notices only now.
            return Thought(length, counted=length)
        left = self.budget - (length - start - len(self.start))
        return thought._replace(left=left, counted=length, closing=0 if left <= 0 else None)


def force_closing(
    logits: torch.Tensor,  # [num_rows, vocab_size]
    rows: Rows,
    metadata: SamplingMetadata,
) -> torch.Tensor:
    """Force closing strings where budgets are exhausted, in place.

    Args:
        logits: logits of the rows, after penalties.
        rows: the rows.
        metadata: has the requests' output and vLLM's records of their budgets.
    """
    holder = metadata.thinking_budget_state_holder
    if holder is None or not holder.think_end_token_ids:
        return logits
    markers = tuple(holder.think_start_token_ids), tuple(holder.think_end_token_ids)
    forced_rows: list[int] = []
    forced_tokens: list[int] = []
    thoughts: dict[int, Thought] = {}
    for row, (request, drafts) in enumerate(zip(rows.request, rows.drafts, strict=True)):
        if (record := holder._state.get(request)) is None:
            continue
        if not drafts:
            budget = ThinkingBudget(record["thinking_token_budget"], *markers)
            thought = _catch_up(record, budget, metadata.output_token_ids[request])
        else:
            thought = budget.advance(thoughts[rows.before[row]], drafts[-1])
        thoughts[row] = thought
        if thought.closing is not None:
            forced_rows.append(row)
            forced_tokens.append(budget.end[thought.closing])
    if forced_rows:
        index = send(torch.tensor([forced_rows, forced_tokens]), logits.device)
        logits[tuple(index)] = FORCED
    return logits


def _catch_up(record: dict[str, Any], budget: ThinkingBudget, output: list[int]) -> Thought:
    """Return the thought after ``output``, and keep it for the next step.

    Tokens that are not known yet are not kept; if output was taken back, all of it is read again.
    """
    known = len(output)
    while known and output[known - 1] == UNKNOWN:
        known -= 1
    thought = record.get(_KEY)
    if thought is None or thought.length > known:
        # The record is as vLLM made it from the prompt: nothing else here updates it.
        thought = budget.begin(record["think_count"] if record["in_think"] else None)
    for token in output[thought.length : known]:
        thought = budget.advance(thought, token)
    record[_KEY] = thought
    for token in output[known:]:
        thought = budget.advance(thought, token)
    return thought


def _ends_with(tokens: tuple[int, ...], marker: tuple[int, ...]) -> bool:
    return bool(marker) and tokens[-len(marker) :] == marker
