"""Answers that end at a stop string, with the token ids and the count that they have alone.

Why: vLLM 0.30 looks for stop strings after each step, in the text of all tokens that the step
brought (vllm/v1/engine/output_processor.py:OutputProcessor.process_outputs). It cuts the text, but
token ids, logprobs and what is counted and billed go on to the end of the step: with K drafts up to
K tokens more than without.
How: before an output is processed, the tokens behind the one that completes a stop string are taken
from it. Where the string ends is what vLLM's own detokenizer says, on a copy, token by token.
Until: vLLM 0.32, whose ``OutputProcessor`` has ``_trim_surplus_tokens``. 0.31 has the fault.
"""

from __future__ import annotations

import copy
import logging
from typing import Any

from vllm_ascend_spec.compat.patching import Patches
from vllm_ascend_spec.log import log_once

_patches = Patches()
revert = _patches.revert


def apply() -> None:
    """Install the mend once."""
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
    """Cut what one request has got in a step behind the token that completes a stop string.

    Args:
        output: vLLM's ``EngineCoreOutput``, changed in place.
        detokenizer: of the request; None for pooling.
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
    if output.routed_experts is not None:  # of a step with drafts: a row per token
        output.routed_experts = output.routed_experts[:count]
    # If the request ended for another reason, too, then behind the stop string.
    output.finish_reason = output.stop_reason = None


def tokens_to_stop(detokenizer: Any, tokens: list[int]) -> int:
    """Return how many of the ``tokens`` it takes to complete a stop string, all if none is."""
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
