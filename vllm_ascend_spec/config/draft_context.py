"""How long requests a draft model drafts for, where that is shorter than the target's context."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_ascend_spec.config.resolved import speculation_of

if TYPE_CHECKING:
    from vllm.config import VllmConfig


def draft_context(vllm_config: VllmConfig) -> int | None:
    """Return the most tokens of a request, drafts included, that drafts are made for.

    MTP layers have the context of the target that they are part of, and what has no positions has
    no context: only ``speculative_config.max_model_len`` limits them.

    Returns:
        None where every request of the target can have drafts.
    """
    spec, longest = vllm_config.speculative_config, vllm_config.model_config.max_model_len
    limit = spec.max_model_len
    has_positions = speculation_of(vllm_config).draft_loop is not None and spec.method != "mtp"
    if limit is None and has_positions:
        limit = spec.draft_model_config.max_model_len
    return limit if limit is not None and limit < longest else None


def context_warnings(vllm_config: VllmConfig) -> list[str]:
    """Return what a person should know of a draft with a shorter context than its target's."""
    context = draft_context(vllm_config)
    if context is None or vllm_config.speculative_config.max_model_len is not None:
        return []
    longest = vllm_config.model_config.max_model_len
    return [
        f"The draft model's context has {context} tokens and the target's {longest}: a request "
        f"that is longer than {context} tokens goes on without drafts, the others keep theirs."
    ]


def may_be_ragged(vllm_config: VllmConfig) -> bool:
    """Tell whether requests of a batch may have different numbers of rows and lose nothing."""
    return not vllm_config.compilation_config.cudagraph_mode.has_full_cudagraphs()
