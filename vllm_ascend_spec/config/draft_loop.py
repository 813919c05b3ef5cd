"""Check the draft loop that the user asked for."""

from __future__ import annotations

from vllm_ascend_spec.config.engine import SpecInput
from vllm_ascend_spec.config.schema import OURS, SECTION
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.upstream.limits import NO_LOOP_ON_NPU

OPTION = f"additional_config.{SECTION}.draft_loop"


def check_draft_loop(request: SpecInput) -> None:
    """Refuse a loop for a method without one, and our loop where it is not possible.

    The drafter refuses what only the loaded models tell (sparse or compressed attention).

    Raises:
        ConfigError: naming the reason.
    """
    if "draft_loop" not in request.section:
        return
    wanted = request.options.draft_loop
    if not request.method.has_draft_loop:
        problem = f"has no effect with method {request.method.name!r}, which has no draft model"
        raise ConfigError(OPTION, wanted, problem)
    cause = cause_against_our_loop(request)
    if wanted == OURS and cause is not None:
        problem = f"not possible with {cause}; valid here: 'auto', 'stock'"
        raise ConfigError(OPTION, wanted, problem)


def cause_against_our_loop(request: SpecInput) -> str | None:
    """Return which option keeps our loop from being used, or None."""
    engine = request.engine
    found = {
        "use_heterogeneous_vocab": bool(request.spec.get("use_heterogeneous_vocab")),
        "expert load balancing": engine.enable_eplb,
    }
    is_npu = engine.device is not None and engine.device.family == "ascend"
    if is_npu and NO_LOOP_ON_NPU is not None:
        return NO_LOOP_ON_NPU
    return next((cause for cause, is_there in found.items() if is_there), None)
