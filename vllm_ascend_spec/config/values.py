"""Checks of values. Each function makes a check that says what is valid if a value is not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vllm_ascend_spec.errors import did_you_mean

# Returns None for a valid value, else what is valid.
Check = Callable[[Any], str | None]


def int_in(low: int, high: int | None = None) -> Check:
    """Accept whole numbers from ``low`` to ``high``."""
    upwards = f"from {low} on" if high is None else f"from {low} to {high}"
    valid = f"valid: a whole number {upwards}"

    def check(value: Any) -> str | None:
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        return None if is_whole and low <= value and (high is None or value <= high) else valid

    return check


def number(low: float, high: float) -> Check:
    """Accept numbers from ``low`` to ``high``, but not NaN."""
    valid = f"valid: a number from {low} to {high}"

    def check(value: Any) -> str | None:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return None if is_number and low <= value <= high else valid  # false for NaN

    return check


def share() -> Check:
    """Accept numbers above 0, up to 1."""
    valid = "valid: a number above 0, up to 1"
    up_to_one = number(0, 1)
    return lambda value: None if up_to_one(value) is None and value > 0 else valid


def boolean() -> Check:
    """Accept true and false."""
    return lambda value: None if isinstance(value, bool) else "valid: true or false"


def text(what: str) -> Check:
    """Accept non-empty strings."""
    valid = f"valid: {what}, as a string"
    return lambda value: None if isinstance(value, str) and value else valid


def json_object() -> Check:
    """Accept JSON objects; their content is checked elsewhere."""
    return lambda value: None if isinstance(value, Mapping) else "valid: a JSON object"


def one_of(*choices: str) -> Check:
    """Accept the strings ``choices``."""
    valid = f"valid: {', '.join(map(repr, choices))}"

    def check(value: Any) -> str | None:
        is_one = isinstance(value, str) and value in choices
        return None if is_one else did_you_mean(value, choices) + valid

    return check


def optional(check: Check) -> Check:
    """Accept null and what ``check`` accepts."""
    return lambda value: None if value is None else check(value)


def non_empty_list(of: str) -> Check:
    """Accept non-empty lists; their items are checked elsewhere."""
    valid = f"valid: a list, not empty, of {of}"
    return lambda value: None if isinstance(value, list | tuple) and value else valid


def anything(what: str) -> Check:
    """Accept everything but null; the value is checked elsewhere."""
    return lambda value: f"valid: {what}" if value is None else None
