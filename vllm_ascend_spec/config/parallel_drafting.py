"""Drafts made in one pass: which requests ask for them, and what is not possible with them."""

from __future__ import annotations

from vllm_ascend_spec.config.draft_loop import OPTION as LOOP
from vllm_ascend_spec.config.engine import SpecInput
from vllm_ascend_spec.config.schedule import NAME as SCHEDULE
from vllm_ascend_spec.config.schedule import option_of
from vllm_ascend_spec.errors import ConfigError

PARALLEL = "parallel_drafting"
STOCK = "stock"


def in_one_pass(request: SpecInput) -> bool:
    """Tell whether all drafts of a step are to come from one pass of a model."""
    return request.method.in_one_pass or bool(request.spec.get(PARALLEL))


def check_one_pass(request: SpecInput) -> None:
    """Refuse options that cannot be combined with a pass over mask tokens.

    Raises:
        ConfigError: naming the option and the reason.
    """
    if not in_one_pass(request):
        return
    spec = request.spec
    if spec.get("disable_padded_drafter_batch"):
        raise ConfigError(
            "speculative_config.disable_padded_drafter_batch",
            True,
            f"not possible with {PARALLEL}, which adds masks to a padded batch; leave it out",
        )
    if spec.get(SCHEDULE) is not None and request.section.get("draft_loop") == STOCK:
        raise ConfigError(
            LOOP,
            STOCK,
            f"not possible with {option_of(spec)} and drafts in one pass: vLLM's own loop always "
            "makes K of them; valid here: 'auto', 'ours'",
        )
