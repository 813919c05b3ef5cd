"""The extra argument ``speculation``, by which a request limits its own number of drafts.

In ``LLM`` scripts it is ``SamplingParams(extra_args={"speculation": "off"})``, over HTTP
``"vllm_xargs": {"speculation": "off"}``. A number is the most drafts of the request in a step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vllm_ascend_spec.errors import ConfigError

NAME, OFF = "speculation", "off"
OPTION = f"extra_args.{NAME}"


def most_drafts(extra_args: Mapping[str, Any] | None) -> int | None:
    """Return the most drafts that a request asks for; None if it sets no limit.

    Args:
        extra_args: extra arguments of a request, checked by :func:`check_request`.
    """
    value = (extra_args or {}).get(NAME)
    return 0 if value == OFF else value


def check_request(
    extra_args: Mapping[str, Any], max_k: int | None, refusal: str | None = None
) -> None:
    """Check the value of ``speculation`` in a request.

    Args:
        extra_args: extra arguments of a request, which include ``speculation``.
        max_k: K of the engine; None if it does not speculate.
        refusal: why requests of this engine cannot differ in their drafts; None if they can.

    Raises:
        ConfigError: the value is refused; names the valid values or the reason.
    """
    value = extra_args[NAME]
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if value != OFF and not (is_number and 0 <= value <= (max_k or 0)):
        if max_k is None:
            problem = f"this engine does not speculate; valid: {OFF!r}"
        else:
            problem = f"valid: {OFF!r}, or the maximum number of drafts, 0 to {max_k}"
        raise ConfigError(OPTION, value, problem)
    if max_k is not None and refusal is not None:
        raise ConfigError(OPTION, value, refusal)
