"""A request's own say in how many drafts it has: ``speculation`` among its extra arguments.

In ``LLM`` scripts ``SamplingParams(extra_args={"speculation": "off"})``, over HTTP ``"vllm_xargs":
{"speculation": "off"}``. A number is the most drafts that the request has in a step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vllm_ascend_spec.errors import ConfigError

NAME, OFF = "speculation", "off"
OPTION = f"extra_args.{NAME}"


def most_drafts(extra_args: Mapping[str, Any] | None) -> int | None:
    """Return how many drafts a request has at most; None where it does not say.

    Args:
        extra_args: a request's, checked by :func:`check_request`.
    """
    value = (extra_args or {}).get(NAME)
    return 0 if value == OFF else value


def check_request(
    extra_args: Mapping[str, Any], num_drafts: int | None, refusal: str | None = None
) -> None:
    """Refuse what a request cannot ask for.

    Args:
        extra_args: of a request that does ask.
        num_drafts: K of the engine; None for one that does not speculate.
        refusal: why no request of this engine can be drafted for otherwise than the others.

    Raises:
        ConfigError: with what is valid, or the reason.
    """
    value = extra_args[NAME]
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if value != OFF and not (is_number and 0 <= value <= (num_drafts or 0)):
        if num_drafts is None:
            problem = f"this engine does not speculate; valid: {OFF!r}"
        else:
            problem = f"valid: {OFF!r}, or at most so many drafts: a number from 0 to {num_drafts}"
        raise ConfigError(OPTION, value, problem)
    if num_drafts is not None and refusal is not None:
        raise ConfigError(OPTION, value, refusal)
