"""The records of vLLM's options, compared with vLLM."""

from __future__ import annotations

import dataclasses
import inspect
import pkgutil
import re
from typing import Any

import pytest
from vllm.config import SpeculativeConfig

from tests.zoo import SPECS, TARGET
from vllm_ascend_spec.config.device import Device
from vllm_ascend_spec.config.engine import EngineOptions
from vllm_ascend_spec.config.examine import examine
from vllm_ascend_spec.config.method import Method
from vllm_ascend_spec.config.old_names import ALIASES, KEYS
from vllm_ascend_spec.config.options import ABSENT, INTERNAL, OPTIONS, OURS, is_unset
from vllm_ascend_spec.config.spec_options import _why_not
from vllm_ascend_spec.devices import cpu, cuda, npu
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.hooks.preflight import resolve_engine
from vllm_ascend_spec.methods.registry import BUILT_IN as METHODS
from vllm_ascend_spec.upstream.limits import WITHOUT_OPTIONS

FIELDS: dict[str, Any] = {
    field.name: field
    for field in dataclasses.fields(SpeculativeConfig)  # type: ignore[arg-type]
}


def default_of(name: str) -> Any:
    default = FIELDS[name].default
    return getattr(default, "default", default)  # pydantic's Field with bounds has it inside


def test_every_option_of_vllm_has_a_record() -> None:
    assert {*OPTIONS, *ABSENT, *INTERNAL} - WITHOUT_OPTIONS.keys() == set(FIELDS) | OURS
    assert not OURS & set(FIELDS)
    assert not set(OPTIONS) & set(ABSENT)


@pytest.mark.parametrize("name", [*OPTIONS, *ABSENT])
def test_what_is_unset_is_vllms_default(name: str) -> None:
    if name in WITHOUT_OPTIONS:
        pytest.skip(f"not with {WITHOUT_OPTIONS[name]}")
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


# What vLLM fills in, and what the rules of ours about drafts of one pass look after.
FILLED_IN = {"draft_model_config", "draft_parallel_config", "parallel_drafting"}


@pytest.mark.parametrize(
    "method", [m for m in METHODS.values() if m.drafters], ids=lambda m: m.name
)
def test_nothing_that_vllms_proposer_reads_has_no_effect(method: Method) -> None:
    theirs = [name for name in method.drafters["vllm"] if name.startswith("vllm.")]
    classes = {kind for name in theirs for kind in pkgutil.resolve_name(name).__mro__[:-1]}
    source = "".join(map(inspect.getsource, classes))
    read = set(re.findall(r"\b(?:spec_cfg|spec|speculative_config)\.(\w+)", source))
    for name in read & {*OPTIONS, *ABSENT} - method.options - FILLED_IN:
        assert "has no effect" not in _why_not(name, method, METHODS)
    if method.has_draft_loop and method.for_spec is None:
        assert read >= {"moe_backend", "attention_backend", "kv_cache_dtype", "draft_load_config"}


@pytest.mark.parametrize("method", METHODS)
def test_old_names_are_told_the_new_ones(method: str) -> None:
    for old, new in {**KEYS, **ALIASES}.items():
        if old == new:
            continue
        with pytest.raises(ConfigError) as raised:
            resolve_engine(TARGET, {**SPECS.get(method, {"method": method}), old: 3})
        assert raised.value.option == f"speculative_config.{old}"
        wanted = f"write {new!r}" if new else "leave it out"
        assert raised.value.problem.endswith(wanted)
        assert new is None or new in OPTIONS


def test_old_names_are_told_before_the_method_is_missed() -> None:
    with pytest.raises(ConfigError, match="speculative_model='x': has another name here; write"):
        resolve_engine(TARGET, {"speculative-model": "x", "num_speculative_tokens": 3})


@pytest.mark.parametrize("key", ["verify_rule", "draft_length", "ascend_spec"])
def test_our_options_belong_elsewhere(key: str) -> None:
    with pytest.raises(ConfigError, match=r"is an option of --additional-config '{\"ascend_spec"):
        resolve_engine(TARGET, {**SPECS["eagle"], key: "block"})


@pytest.mark.parametrize(
    ("device", "value", "problem"),
    [
        (cpu.DEVICE, "triton", "not possible on a CPU; valid: 'auto'"),
        (npu.DEVICE, "triton", "vllm-ascend ignores it"),
        (cuda.DEVICE, "bogus", "valid: 'auto', 'triton'"),
        (cpu.DEVICE, "auto", None),
        (npu.DEVICE, "auto", None),
        (cuda.DEVICE, "triton", None),
    ],
)
def test_backends_of_experts(device: Device, value: str, problem: str | None) -> None:
    spec = {**SPECS["eagle"], "moe_backend": value}
    engine = EngineOptions(device=device)
    if problem is None:
        assert request_and_checks(spec, engine) is not None
        return
    with pytest.raises(ConfigError, match=re.escape(problem)) as raised:
        request_and_checks(spec, engine)
    assert raised.value.option == "speculative_config.moe_backend"


def request_and_checks(spec: dict[str, Any], engine: EngineOptions) -> Any:
    return examine(TARGET, spec, engine=engine, methods=METHODS).resolved()


def test_numbers_are_not_mistaken_for_flags() -> None:
    assert not is_unset("use_heterogeneous_vocab", 0)
    assert is_unset("use_heterogeneous_vocab", False)
    assert not is_unset("frobnicate", None)
