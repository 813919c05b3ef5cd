"""What every platform of ours checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_ascend_spec.errors import ConfigError

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.utils.argparse_utils import FlexibleArgumentParser


def check_command_line(parser: FlexibleArgumentParser | None) -> None:
    """Make ``vllm serve`` report wrong options before anything expensive starts."""
    if parser is not None:
        from vllm_ascend_spec.compat import parser_preflight

        parser_preflight.apply(parser)


def check_engine_config(vllm_config: VllmConfig) -> None:
    """Validate our options and announce the rule.

    Raises:
        ConfigError: naming the option, its value and what is valid.
    """
    from vllm_ascend_spec.config.resolve import resolve_options
    from vllm_ascend_spec.metrics.rule import announce_rule

    resolve_options(vllm_config)
    announce_rule(vllm_config)
    if vllm_config.speculative_config is not None and vllm_config.use_v2_model_runner:
        raise ConfigError(
            "VLLM_USE_V2_MODEL_RUNNER",
            "1",
            "speculative decoding of vllm-ascend-spec runs on model runner V1; set it to 0",
        )
