"""What a request may say about its drafts."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_ascend_spec.control.request import check_request, most_drafts
from vllm_ascend_spec.errors import ConfigError


@pytest.mark.parametrize(
    ("extra_args", "most"),
    [
        (None, None),
        ({}, None),
        ({"another": 3}, None),
        ({"speculation": "off"}, 0),
        ({"speculation": 0}, 0),
        ({"speculation": 2}, 2),
    ],
)
def test_what_is_valid(extra_args: Any, most: int | None) -> None:
    if extra_args and "speculation" in extra_args:
        check_request(extra_args, 3)
    assert most_drafts(extra_args) == most


@pytest.mark.parametrize("value", [4, -1, "on", "2", 1.0, True, None, [], "OFF"])
def test_what_is_not(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"extra_args.speculation=.*valid: 'off'.* 0 to 3"):
        check_request({"speculation": value}, 3)


@pytest.mark.parametrize("value", [1, "on"])
def test_an_engine_without_speculation(value: Any) -> None:
    check_request({"speculation": "off"}, None)
    with pytest.raises(ConfigError, match="does not speculate; valid: 'off'"):
        check_request({"speculation": value}, None)


def test_where_it_cannot_be_the_reason_is_given() -> None:
    with pytest.raises(ConfigError, match="because of this"):
        check_request({"speculation": "off"}, 3, "not possible because of this")
