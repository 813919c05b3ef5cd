"""Over how many devices a draft model is split: as its target, or not at all where that can be.

vLLM has the option and looks at it for a draft model alone, to refuse any size but the target's
(vllm/v1/spec_decode/draft_model.py:DraftModelProposer); a head is split as its target. vllm-ascend
can leave a head whole on every device.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vllm_ascend_spec.config.engine import Engine, Request
from vllm_ascend_spec.config.method import Method
from vllm_ascend_spec.errors import ConfigError

SIZE = "draft_tensor_parallel_size"
OPTION = f"speculative_config.{SIZE}"


def with_split(
    spec: Mapping[str, Any], method: Method, engine: Engine
) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """Return ``spec`` with the size by which a draft is split, and a warning if 1 was asked for.

    Guides for any device say 1, so that is no error where the draft is split all the same.
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


def check_split(request: Request) -> None:
    """Raise unless the draft is split as the target, or left whole.

    Raises:
        ConfigError: another size was asked for.
    """
    size, target = request.spec.get(SIZE), request.engine.tensor_parallel_size
    if not request.method.has_draft_loop:
        return  # what has no loop is loaded by this package, see draft_heads.py
    if size not in (None, 1, target):
        raise ConfigError(OPTION, size, f"valid: 1, or {target}, the target's size")


def _may_be_whole(method: Method, engine: Engine) -> bool:
    return engine.device is not None and method.name in engine.device.whole_drafts
