"""``thinking_token_budget`` of one request applied to another, and thoughts counted too short.

Why: vLLM (vllm/v1/sample/thinking_budget_state.py:ThinkingBudgetStateHolder) keeps a record per
batch slot. If a request without a budget moves to the slot of a request that has left, the old
record stays and the moved request inherits it. And if a prompt leaves a thought open after a start
marker of n > 1 tokens, vLLM counts n - 1 tokens of the thought too few, so the budget is exceeded.
Both happen without speculation too.
How: a slot is emptied before another request moves there; a thought starts where its marker begins.
Until: vLLM does so itself. The file is the same in 0.31 to 0.33.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vllm_ascend_spec.patches.patching import Patches

_patches = Patches()
revert = _patches.revert


def apply() -> None:
    """Install the patch once."""
    if _patches:
        return
    from vllm.v1.sample.logits_processor.interface import MoveDirectionality
    from vllm.v1.sample.thinking_budget_state import ThinkingBudgetStateHolder as Holder

    stock_sync = Holder.sync_batch
    stock_init = Holder._init_state_entry

    def sync_batch(self: Any, batch_update: Any) -> None:
        if not batch_update:
            return
        stock_sync(self, replace(batch_update, moved=[]))
        for move in batch_update.moved:
            _, target, direction = move
            if direction == MoveDirectionality.UNIDIRECTIONAL:
                self._state.pop(target, None)
            stock_sync(self, replace(batch_update, removed=[], added=[], moved=[move]))

    def init_state_entry(
        self: Any, prompt_tok_ids: list[int] | None, thinking_token_budget: int
    ) -> Any:
        record = stock_init(self, prompt_tok_ids, thinking_token_budget)
        if record["continue_thinking"]:
            record["start_thinking"] -= len(self.think_start_token_ids) - 1
        return record

    _patches.set(Holder, "sync_batch", sync_batch)
    _patches.set(Holder, "_init_state_entry", init_state_entry)
