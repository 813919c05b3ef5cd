"""Our own options, and where they come from."""

from __future__ import annotations

import importlib
from dataclasses import FrozenInstanceError, fields
from types import SimpleNamespace
from typing import Any

import pytest

from vllm_ascend_spec.config.resolve import resolve_options, rule_of
from vllm_ascend_spec.config.schema import DRAFT_LOOPS, VERIFY_BACKENDS, VERIFY_RULES, SpecOptions
from vllm_ascend_spec.errors import ConfigError

SPECULATIVE = SimpleNamespace(rejection_sample_method="standard")
PREFIX = "additional_config.ascend_spec"
BACKENDS = "valid: " + ", ".join(map(repr, VERIFY_BACKENDS))


def test_public_options_and_their_defaults() -> None:
    assert {field.name: field.default for field in fields(SpecOptions)} == {
        "draft_loop": "auto",
        "verify_backend": None,
        "verify_rule": "token",
    }


def test_options_are_frozen_and_have_no_order() -> None:
    with pytest.raises(FrozenInstanceError):
        SpecOptions().draft_loop = "stock"  # type: ignore[misc]
    with pytest.raises(TypeError):
        SpecOptions("stock")  # type: ignore[misc]


@pytest.mark.parametrize("loop", DRAFT_LOOPS)
def test_every_draft_loop_is_taken(loop: str) -> None:
    assert SpecOptions.from_mapping({"draft_loop": loop}).draft_loop == loop


def test_draft_loops() -> None:
    assert DRAFT_LOOPS == ("auto", "fused", "stock")


@pytest.mark.parametrize("backend", [*VERIFY_BACKENDS, None])
def test_backend_is_taken_by_name(backend: str | None) -> None:
    assert SpecOptions.from_mapping({"verify_backend": backend}).verify_backend == backend


@pytest.mark.parametrize("op", ["verify_greedy", "verify_sample", "grammar_mask"])
def test_backends_are_those_of_the_ops(op: str) -> None:
    # Not imported by the schema: it must stay light, and the ops need torch.
    module = importlib.import_module(f"vllm_ascend_spec.ops.{op}")
    assert set(VERIFY_BACKENDS) == set(module.OP.backends)


@pytest.mark.parametrize("rule", VERIFY_RULES)
def test_every_rule_is_taken(rule: str) -> None:
    assert SpecOptions.from_mapping({"verify_rule": rule}).verify_rule == rule


def test_rules_are_those_of_the_op() -> None:
    assert importlib.import_module("vllm_ascend_spec.ops.verify_sample").RULES == VERIFY_RULES


@pytest.mark.parametrize(
    ("values", "start", "valid"),
    [
        ({"draft_loop": "spiral"}, ".draft_loop='spiral': ", "'auto', 'fused', 'stock'"),
        ({"draft_loop": None}, ".draft_loop=None: ", "'auto', 'fused', 'stock'"),
        ({"draft_loop": ["auto"]}, ".draft_loop=['auto']: ", "'auto', 'fused', 'stock'"),
        ({"verify_backend": 3}, ".verify_backend=3: ", BACKENDS),
        ({"verify_backend": "abacus"}, ".verify_backend='abacus': ", BACKENDS),
        ({"verify_backend": ""}, ".verify_backend='': ", BACKENDS),
        ({"verify_backend": ["reference"]}, ".verify_backend=['reference']: ", "'reference'"),
        ({"verify_rule": "tree"}, ".verify_rule='tree': ", "valid: 'token', 'block'"),
        ({"verify_rule": "synthetic"}, ".verify_rule='synthetic': ", "valid: 'token', 'block'"),
        ({"verify_rule": None}, ".verify_rule=None: ", "valid: 'token', 'block'"),
        ({"verify_rule": ["block"]}, ".verify_rule=['block']: ", "valid: 'token', 'block'"),
        (
            {"draft_lop": "auto"},
            ".draft_lop='auto': ",
            "valid: draft_loop, verify_backend, verify_",
        ),
        ("auto", "='auto': ", "JSON object"),
        (["draft_loop"], "=['draft_loop']: ", "JSON object"),
        (None, "=None: ", "JSON object"),
    ],
)
def test_refusal_names_option_value_and_what_is_valid(values: Any, start: str, valid: str) -> None:
    with pytest.raises(ConfigError) as raised:
        SpecOptions.from_mapping(values)
    message = str(raised.value)
    assert message.startswith(PREFIX + start)
    assert valid in message
    assert "\n" not in message


def engine(additional: Any, speculative: Any = SPECULATIVE) -> Any:
    return SimpleNamespace(additional_config=additional, speculative_config=speculative)


def test_options_are_resolved_from_vllms_config() -> None:
    section = {"ascend_spec": {"draft_loop": "stock"}, "other_plugin": {"x": 1}}
    assert resolve_options(engine(section)) == SpecOptions(draft_loop="stock")


@pytest.mark.parametrize("additional", [{}, None, {"other_plugin": 1}, {"ascend_spec": None}])
def test_defaults_where_our_section_is_absent(additional: Any) -> None:
    assert resolve_options(engine(additional)) == SpecOptions()
    assert resolve_options(engine(additional, None)) == SpecOptions()


@pytest.mark.parametrize(
    ("method", "section", "rule", "option"),
    [
        ("standard", {}, "token", "token"),
        ("standard", {"verify_rule": "block"}, "block", "block"),
        ("block", {}, "block", "block"),
        ("block", {"verify_rule": "block"}, "block", "block"),
        ("synthetic", {}, "synthetic", "token"),
    ],
)
def test_rule_is_resolved_from_both_options(
    method: str, section: dict[str, str], rule: str, option: str
) -> None:
    config = engine({"ascend_spec": section}, SimpleNamespace(rejection_sample_method=method))
    assert rule_of(config) == rule
    assert resolve_options(config) == SpecOptions(verify_rule=option)


def test_no_rule_without_speculation() -> None:
    assert rule_of(engine({}, None)) is None


def test_contradicting_rules_are_refused() -> None:
    config = engine(
        {"ascend_spec": {"verify_rule": "token"}}, SimpleNamespace(rejection_sample_method="block")
    )
    with pytest.raises(ConfigError, match="contradicts"):
        resolve_options(config)


def test_options_without_speculation_are_refused() -> None:
    section = {"draft_loop": "stock"}
    with pytest.raises(ConfigError, match="without --speculative-config") as raised:
        resolve_options(engine({"ascend_spec": section}, None))
    assert raised.value.option == PREFIX
    assert raised.value.value == section


def test_wrong_option_is_refused_with_and_without_speculation() -> None:
    for speculative in (SPECULATIVE, None):
        with pytest.raises(ConfigError, match="draft_lop"):
            resolve_options(engine({"ascend_spec": {"draft_lop": 1}}, speculative))
