"""Speculation and pipeline parallelism do not go together."""

from __future__ import annotations

from vllm_ascend_spec.config.engine import SpecInput
from vllm_ascend_spec.errors import ConfigError

OPTION = "--pipeline-parallel-size"
REASON = (
    "not possible with speculation: vLLM 0.30 gives a draft model's layers the numbers of the "
    "target's last stage and stops; its CPU runner stops with several stages anyway; use "
    "--tensor-parallel-size"
)


def check_pipeline(request: SpecInput) -> None:
    """Refuse more than one pipeline stage.

    Raises:
        ConfigError: naming the option and the reason.
    """
    stages = request.engine.pipeline_parallel_size
    if stages > 1:
        raise ConfigError(OPTION, stages, REASON)
