"""Tensor parallelism of a draft model: split as its target, or kept whole where possible.

vLLM reads the option only for a separate draft model, to refuse any size but the target's
(vllm/v1/spec_decode/draft_model.py:DraftModelProposer). It splits a head as its target; vllm-ascend
can keep a whole head on every device.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vllm_ascend_spec.config.engine import EngineOptions, SpecInput
from vllm_ascend_spec.config.method import Method
from vllm_ascend_spec.errors import ConfigError

SIZE = "draft_tensor_parallel_size"
OPTION = f"speculative_config.{SIZE}"


def with_split(
    spec: Mapping[str, Any], method: Method, engine: EngineOptions
) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """Return ``spec`` with the draft's actual tensor parallel size, and a warning if 1 is ignored.

    Guides for any device say 1, so it is no error if the draft is split anyway.
    """
    size = engine.tensor_parallel_size
    if (
        spec.get(SIZE) != 1
        or size == 1
        or not method.has_draft_loop
        or _may_be_whole(method, engine)
    ):
        return spec, ()
    warning = (
        f"{OPTION}=1 has no effect: the draft is split over the target's {size} devices, as vLLM "
        "does it here."
    )
    return {**spec, SIZE: size}, (warning,)


def check_split(request: SpecInput) -> None:
    """Raise unless the draft is split as the target, or left whole.

    Raises:
        ConfigError: another size was asked for.
    """
    size, target = request.spec.get(SIZE), request.engine.tensor_parallel_size
    if not request.method.has_draft_loop:
        return  # this package loads such drafts itself, see draft_heads.py
    if size not in (None, 1, target):
        raise ConfigError(OPTION, size, f"valid: 1, or {target}, the target's size")


def _may_be_whole(method: Method, engine: EngineOptions) -> bool:
    return engine.device is not None and method.name in engine.device.whole_drafts
