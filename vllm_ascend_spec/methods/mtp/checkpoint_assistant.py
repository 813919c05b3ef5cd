"""Check whether a checkpoint is an assistant of Gemma 4, and fits its target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vllm_ascend_spec.checkpoint.draft import Checkpoint, Draft
from vllm_ascend_spec.checkpoint.errors import InvalidCheckpointError, blame, short_value
from vllm_ascend_spec.upstream.limits import NO_ASSISTANT_ON_NPU

MODEL_TYPES = frozenset(("gemma4_assistant", "gemma4_unified_assistant", "gemma4_mtp"))
WIDTH = "backbone_hidden_size"
PROJECTIONS = ("pre_projection.weight", "post_projection.weight")


def is_assistant(config: Mapping[str, Any]) -> bool:
    """Tell whether a ``config.json`` is an assistant's."""
    return config.get("model_type") in MODEL_TYPES


def check_assistant(draft: Draft, found: Checkpoint) -> None:
    """Check an assistant, which is no model by itself.

    Args:
        draft: as it was asked for.
        found: what its folder holds.

    Raises:
        CheckpointError: stating what was found and what is valid.
    """
    target = draft.target_text()
    with blame(draft.option, draft.model):
        if draft.family == "ascend" and NO_ASSISTANT_ON_NPU is not None:
            raise InvalidCheckpointError(
                f"is an assistant of Gemma 4, not possible with {NO_ASSISTANT_ON_NPU}"
            )
        if draft.option == "model":
            raise InvalidCheckpointError(
                "is an assistant, which drafts for a Gemma 4; name that as the model, and this one "
                "as speculative_config.model"
            )
        missing = [name for name in PROJECTIONS if name not in found.tensors]
        if found.usual_names and missing:
            raise InvalidCheckpointError(f"has no tensor {missing[0]}, which every assistant has")
        width, theirs = found.config.get(WIDTH), (target or {}).get("hidden_size")
        if width is not None and theirs is not None and width != theirs:
            raise InvalidCheckpointError(
                f"its {WIDTH} is {short_value(width)}, the target's hidden_size is "
                f"{short_value(theirs)}; a draft has to be made for its target"
            )
