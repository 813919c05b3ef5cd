"""The records of vLLM's options, compared with vLLM."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from vllm.config import SpeculativeConfig

from vllm_ascend_spec.config.options import INTERNAL, OPTIONS, OURS, WITHOUT_EFFECT, is_unset
from vllm_ascend_spec.methods.registry import BUILT_IN as METHODS

FIELDS: dict[str, Any] = {
    field.name: field
    for field in dataclasses.fields(SpeculativeConfig)  # type: ignore[arg-type]
}


def default_of(name: str) -> Any:
    default = FIELDS[name].default
    return getattr(default, "default", default)  # pydantic's Field with bounds has it inside


def test_every_option_of_vllm_has_a_record() -> None:
    assert {*OPTIONS, *WITHOUT_EFFECT, *INTERNAL} == set(FIELDS) | OURS
    assert not OURS & set(FIELDS)
    assert not set(OPTIONS) & set(WITHOUT_EFFECT)


@pytest.mark.parametrize("name", [*OPTIONS, *WITHOUT_EFFECT])
def test_what_is_unset_is_vllms_default(name: str) -> None:
    default = None if name in OURS else default_of(name)
    assert is_unset(name, default)
    assert not is_unset(name, "something else")


@pytest.mark.parametrize("option", OPTIONS.values(), ids=lambda option: option.name)
def test_default_is_a_valid_value_where_it_may_be_given(option: Any) -> None:
    is_required = any(option.name in method.required for method in METHODS.values())
    if not is_required and option.name != "method":
        assert option.check(option.unset) is None
    assert option.about
    assert option.check(object()) is None or option.check(object()).strip()


def test_every_option_of_a_method_has_a_record() -> None:
    for method in METHODS.values():
        assert method.options <= set(OPTIONS)


def test_numbers_are_not_mistaken_for_flags() -> None:
    assert not is_unset("use_heterogeneous_vocab", 0)
    assert is_unset("use_heterogeneous_vocab", False)
    assert not is_unset("frobnicate", None)
