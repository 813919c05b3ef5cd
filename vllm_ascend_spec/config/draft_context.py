"""The request length up to which a draft model drafts, if the target's context is longer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_ascend_spec.config.draft_window import check_size
from vllm_ascend_spec.config.resolved import speculation_of

if TYPE_CHECKING:
    from vllm.config import VllmConfig

    from vllm_ascend_spec.config.resolved import SpecConfig


def draft_context(vllm_config: VllmConfig) -> int | None:
    """Return up to how many tokens, drafts included, a request gets drafts.

    MTP layers have the context of the target that they are part of, and drafts without positions
    have no context: only ``speculative_config.max_model_len`` limits these two.

    Returns:
        None if every request that the target takes can have drafts.
    """
    spec, longest = vllm_config.speculative_config, vllm_config.model_config.max_model_len
    limit = spec.max_model_len
    has_positions = speculation_of(vllm_config).draft_loop is not None and spec.method != "mtp"
    if limit is None and has_positions:
        limit = spec.draft_model_config.max_model_len
    return limit if limit is not None and limit < longest else None


def context_warnings(vllm_config: VllmConfig) -> list[str]:
    """Return a warning if the draft's own context is shorter than its target's."""
    context = draft_context(vllm_config)
    if context is None or vllm_config.speculative_config.max_model_len is not None:
        return []
    longest = vllm_config.model_config.max_model_len
    warning = (
        f"The draft model's context has {context} tokens and the target's {longest}: a request "
        f"that is longer than {context} tokens goes on without drafts, the others keep theirs."
    )
    if speculation_of(vllm_config).draft_window is not None:
        warning += " A draft window does not change that: tokens keep their positions in the text."
    return [warning]


def check_window(vllm_config: VllmConfig, speculation: SpecConfig) -> None:
    """Refuse a draft window that no text with drafts is longer than.

    Raises:
        ConfigError: naming the option, its value and what is valid.
    """
    if speculation.draft_window is not None:
        longest = draft_context(vllm_config) or vllm_config.model_config.max_model_len
        option = speculation.sources["draft_window"]
        check_size(option, speculation.draft_window, longest)


def may_be_ragged(vllm_config: VllmConfig) -> bool:
    """Tell whether requests of a batch may differ in rows without losing full graphs."""
    return not vllm_config.compilation_config.cudagraph_mode.has_full_cudagraphs()
