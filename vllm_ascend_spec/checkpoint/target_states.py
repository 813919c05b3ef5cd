"""The target's hidden states that a head reads: their width and the layers they come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vllm_ascend_spec.checkpoint.errors import InvalidCheckpointError, short_value


def check_width(width: int, target: Mapping[str, Any]) -> None:
    """Raise unless the target's hidden states have the ``width`` that a head reads.

    Raises:
        InvalidCheckpointError: with both widths.
    """
    hidden = target.get("hidden_size")
    if isinstance(hidden, int) and width != hidden:
        raise InvalidCheckpointError(
            f"its target_hidden_size, or else hidden_size, is {short_value(width)}, the target's "
            f"hidden_size is {hidden}; a draft has to be made for its target"
        )


def layers_of(given: Any, option: str, example: Sequence[int]) -> tuple[int, ...]:
    """Return a list of the target's layers; vLLM passes their states in ascending order.

    Raises:
        InvalidCheckpointError: it is not an ascending list of layers.
    """
    whole = isinstance(given, list) and given and all(type(number) is int for number in given)
    if not whole or given != sorted(set(given)) or given[0] < 0:
        raise InvalidCheckpointError(
            f"config.json: {option} is {short_value(given)}; valid: a list of the target's layers, "
            f"ascending, counted from 0, such as {list(example)}"
        )
    return tuple(given)


def check_layers(layers: Sequence[int], option: str, last: int) -> None:
    """Raise if a head reads the states of a layer after the target's ``last`` one.

    Raises:
        InvalidCheckpointError: naming the layers.
    """
    if layers[-1] > last:
        raise InvalidCheckpointError(
            f"config.json: {option} is {short_value(list(layers))}; valid: 0 to {last}, the "
            "target's layers"
        )
