"""JSON on a command line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from vllm_ascend_spec.errors import ConfigError

# By option: the spellings that vLLM accepts.
NAMES: Mapping[str, tuple[str, ...]] = {
    "--speculative-config": ("--speculative-config", "--speculative_config", "-sc"),
    "--additional-config": ("--additional-config", "--additional_config"),
}


def parse_json(option: str, text: str) -> Any:
    """Parse the JSON of an option.

    Raises:
        ConfigError: it is not JSON, or is nested too deeply to be parsed.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ConfigError(option, text, "is nested too deeply; valid: a JSON object") from None
    except ValueError as error:  # also a number of too many digits
        raise ConfigError(option, text, f"is not JSON: {error}") from None


def parse_speculative(text: str | None) -> Any:
    """Parse ``--speculative-config``; as in vLLM an empty string and ``None`` mean no speculation.

    Raises:
        ConfigError: it is not JSON.
    """
    return None if text in (None, "", "None") else parse_json("--speculative-config", text)


def check_texts(arguments: Sequence[str]) -> None:
    """Check that our two options of a command line are JSON, before anything else reads them.

    Raises:
        ConfigError: one is not.
    """
    for option, names in NAMES.items():
        for text in _texts(arguments, names):
            if option == "--speculative-config":
                parse_speculative(text)
            else:
                parse_json(option, text)


def _texts(arguments: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return what follows one of ``names``, as the next argument or after ``=``."""
    after = [text for name, text in pairwise(arguments) if name in names]
    joined = (argument.partition("=") for argument in arguments)
    return after + [text for name, equals, text in joined if equals and name in names]
