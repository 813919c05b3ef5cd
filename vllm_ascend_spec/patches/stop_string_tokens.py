"""Answers that end at a stop string, with the token ids and the count that they have alone.

Why: after each step vLLM 0.30 searches for stop strings in the text of all tokens of that step
(vllm/v1/engine/output_processor.py:OutputProcessor.process_outputs). It cuts the text, but token
ids, logprobs and the token count for usage and billing run to the end of the step: with K drafts,
up to K tokens more than without.
How: before an output is processed, the tokens after the one that completes a stop string are
removed from it. A copy of vLLM's own detokenizer finds where the string ends, token by token.
Until: vLLM 0.32, whose ``OutputProcessor`` has ``_trim_surplus_tokens``. 0.31 has the fault.
"""

from __future__ import annotations

import copy
import logging
from typing import Any

from vllm_ascend_spec.log import log_once
from vllm_ascend_spec.patches.patching import Patches

_patches = Patches()
revert = _patches.revert


def apply() -> None:
    """Install the patch once."""
    if _patches:
        return
    from vllm.v1.engine.output_processor import OutputProcessor

    stock = OutputProcessor.process_outputs

    def process_outputs(self: Any, engine_core_outputs: Any, *args: Any, **kwargs: Any) -> Any:
        for output in engine_core_outputs:
            if (state := self.request_states.get(output.request_id)) is not None:
                cut(output, state.detokenizer)
        return stock(self, engine_core_outputs, *args, **kwargs)

    _patches.set(OutputProcessor, "process_outputs", process_outputs)


def cut(output: Any, detokenizer: Any) -> None:
    """Cut one request's tokens of a step after the token that completes a stop string.

    Args:
        output: vLLM's ``EngineCoreOutput``, changed in place.
        detokenizer: the request's detokenizer; None for pooling.
    """
    tokens = output.new_token_ids
    if len(tokens) < 2 or not getattr(detokenizer, "stop", None):
        return
    count = tokens_to_stop(detokenizer, tokens)
    if count == len(tokens):
        return
    output.new_token_ids = tokens[:count]
    if output.new_logprobs is not None:
        output.new_logprobs = output.new_logprobs.slice_request(0, count)
    if output.routed_experts is not None:  # in a step with drafts: one row per token
        output.routed_experts = output.routed_experts[:count]
    # Any other reason for the end came after the stop string.
    output.finish_reason = output.stop_reason = None


def tokens_to_stop(detokenizer: Any, tokens: list[int]) -> int:
    """Return how many ``tokens`` complete a stop string, or all if they complete none."""
    ahead = copy.copy(detokenizer)
    for name in ("stream", "tokens", "token_ids"):
        if (state := getattr(detokenizer, name, None)) is None:
            continue
        if not hasattr(type(state), "__copy__") and not isinstance(state, list):
            log_once(
                logging.WARNING,
                f"{type(state).__qualname__} of tokenizers cannot be copied: answers that end at a "
                "stop string may have up to K token ids more than without speculation",
            )
            return len(tokens)
        setattr(ahead, name, copy.copy(state))
    for count, token in enumerate(tokens[:-1], 1):
        if ahead.update([token], False) is not None:
            return count
    return len(tokens)
