"""Options that mean nothing, or something lossy, on an NPU."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from vllm.config import SpeculativeConfig

from vllm_ascend_spec.config.ascend import ADDITIONAL, SPECULATIVE, check_ascend_options
from vllm_ascend_spec.errors import ConfigError


def check(additional: Any = None, **spec: Any) -> None:
    check_ascend_options(additional, spec.get)


@pytest.mark.parametrize(
    "additional",
    [
        None,
        {},
        {"rejection_sampler_config": None},
        {"rejection_sampler_config": {"enable_block_verify": False}},
        {"dynamic_spec_config": {"method": None}},
        {"enable_cpu_binding": True},
    ],
)
def test_nothing_is_said_about_other_options(additional: Any) -> None:
    check(additional, quantization=None)


@pytest.mark.parametrize(("section", "name"), ADDITIONAL)
def test_additional_config_is_refused(section: str, name: str) -> None:
    with pytest.raises(ConfigError) as raised:
        check({section: {name: True}})
    assert str(raised.value).startswith(f"additional_config.{section}.{name}=True: ")


def test_lossy_block_verification_is_refused_with_ours_in_its_place() -> None:
    additional = {"rejection_sampler_config": {"enable_block_verify": True}}
    with pytest.raises(ConfigError, match=r"not lossless.*ascend_spec\.verify_rule='block'"):
        check(additional)


@pytest.mark.parametrize("name", SPECULATIVE)
def test_speculative_config_is_refused(name: str) -> None:
    with pytest.raises(ConfigError) as raised:
        check(**{name: "something"})
    assert str(raised.value).startswith(f"speculative_config.{name}='something': has no effect")


def test_options_are_vllms() -> None:
    known = {field.name for field in fields(SpeculativeConfig)}  # type: ignore[arg-type]
    assert set(SPECULATIVE) <= known
