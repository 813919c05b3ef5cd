"""A person's choice of model runner V2."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_ascend_spec.config.combinations import RULES
from vllm_ascend_spec.config.model_runner import VARIABLE, check_model_runner
from vllm_ascend_spec.errors import ConfigError

REQUEST: Any = None  # nothing of it is looked at


def test_the_rule_is_looked_at() -> None:
    assert check_model_runner in RULES


@pytest.mark.parametrize("value", [None, "", "0", "not a number"])
def test_v1_is_fine_and_what_vllm_refuses_is_left_to_it(
    value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(VARIABLE, value)
    check_model_runner(REQUEST)


@pytest.mark.parametrize("value", ["1", " 1", "2"])
def test_v2_is_refused_by_name(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, value)
    with pytest.raises(ConfigError, match="model runner V2") as raised:
        check_model_runner(REQUEST)
    assert str(raised.value).startswith(f"{VARIABLE}={value!r}")
