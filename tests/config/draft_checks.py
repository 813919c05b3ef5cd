"""The check of a draft's checkpoint, as its method's record has it and as a request reaches it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vllm_ascend_spec.checkpoint.draft import Draft
from vllm_ascend_spec.config import draft_options
from vllm_ascend_spec.config.engine import EngineOptions, SpecInput
from vllm_ascend_spec.config.schema import SpecOptions
from vllm_ascend_spec.methods.registry import BUILT_IN


def check_checkpoint(method: str, draft: Draft) -> None:
    """Check a draft as ``method`` wants it."""
    check = BUILT_IN[method].check_checkpoint
    assert check is not None
    check(draft)


def check_draft(spec: dict[str, Any], folder: Path, load_format: str) -> None:
    """Check the draft of a speculative config in a local folder, without its target."""
    request = SpecInput(
        spec=spec,
        method=BUILT_IN[spec["method"]],
        section={},
        options=SpecOptions(),
        engine=EngineOptions(load_format=load_format),
    )
    draft_options.check_checkpoint(request, folder, None)
