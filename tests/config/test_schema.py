"""Our own options, and where they come from."""

from __future__ import annotations

import importlib
from dataclasses import FrozenInstanceError, fields
from types import SimpleNamespace
from typing import Any

import pytest

from vllm_ascend_spec.config.schema import DRAFT_LOOPS, VERIFY_BACKENDS, VERIFY_RULES, SpecOptions
from vllm_ascend_spec.errors import ConfigError

SPECULATIVE = SimpleNamespace(rejection_sample_method="standard")
PREFIX = "additional_config.ascend_spec"
COLLECT = {"collect_folder": "/prompts"}
RULES = "valid: 'token', 'block', 'seeded'"
BACKENDS = "valid: " + ", ".join(map(repr, VERIFY_BACKENDS))


def test_public_options_and_their_defaults() -> None:
    assert {field.name: field.default for field in fields(SpecOptions)} == {
        "capture": "planned",
        "capture_graphs": None,
        "capture_load": None,
        "collect_folder": None,
        "collect_max_bytes": 10**9,
        "collect_rate": 0.1,
        "collect_what": "tokens",
        "draft_length": "auto",
        "draft_lengths": None,
        "draft_loop": "auto",
        "draft_window": None,
        "spec_page": False,
        "tree": None,
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
    assert DRAFT_LOOPS == ("auto", "ours", "stock")


@pytest.mark.parametrize("backend", [*VERIFY_BACKENDS, None])
def test_backend_is_taken_by_name(backend: str | None) -> None:
    assert SpecOptions.from_mapping({"verify_backend": backend}).verify_backend == backend


@pytest.mark.parametrize(
    "op", ["verify_greedy", "verify_sample", "verify_seeded", "verify_tree", "grammar_mask"]
)
def test_backends_are_those_of_the_ops(op: str) -> None:
    # Not imported by the schema: it must stay light, and the ops need torch.
    module = importlib.import_module(f"vllm_ascend_spec.ops.{op}")
    assert set(VERIFY_BACKENDS) == set(module.OP.backends)


@pytest.mark.parametrize("rule", VERIFY_RULES)
def test_every_rule_is_taken(rule: str) -> None:
    assert SpecOptions.from_mapping({"verify_rule": rule}).verify_rule == rule


def test_rules_are_those_of_the_op_and_the_seeded_one() -> None:
    """Which is an op of its own."""
    rules = importlib.import_module("vllm_ascend_spec.ops.verify_sample").RULES
    assert (*rules, "seeded") == VERIFY_RULES


@pytest.mark.parametrize(
    ("values", "start", "valid"),
    [
        ({"draft_loop": "fused"}, ".draft_loop='fused': ", "is called 'ours' now; valid: 'auto'"),
        ({"draft_loop": "spiral"}, ".draft_loop='spiral': ", "'auto', 'ours', 'stock'"),
        ({"draft_loop": None}, ".draft_loop=None: ", "'auto', 'ours', 'stock'"),
        ({"draft_loop": ["auto"]}, ".draft_loop=['auto']: ", "'auto', 'ours', 'stock'"),
        ({"verify_backend": 3}, ".verify_backend=3: ", BACKENDS),
        ({"verify_backend": "abacus"}, ".verify_backend='abacus': ", BACKENDS),
        ({"verify_backend": ""}, ".verify_backend='': ", BACKENDS),
        ({"verify_backend": ["reference"]}, ".verify_backend=['reference']: ", "'reference'"),
        ({"verify_rule": "tree"}, ".verify_rule='tree': ", RULES),
        ({"verify_rule": "synthetic"}, ".verify_rule='synthetic': ", RULES),
        ({"verify_rule": "Seeded"}, ".verify_rule='Seeded': ", RULES),
        ({"verify_rule": None}, ".verify_rule=None: ", RULES),
        ({"verify_rule": ["block"]}, ".verify_rule=['block']: ", RULES),
        (
            {"draft_lop": "auto"},
            ".draft_lop='auto': ",
            "valid: capture, capture_graphs, capture_load, collect_folder, collect_max_bytes, ",
        ),
        ({"capture": "all"}, ".capture='all': ", "valid: 'planned', 'stock'"),
        ({"capture_graphs": 0}, ".capture_graphs=0: ", "valid: a whole number from 1 on"),
        ({"capture_load": 3}, ".capture_load=3: ", "valid: uniform, zipf, normal:MEAN,DEVIATION"),
        (
            {"draft_length": "dynamic"},
            ".draft_length='dynamic': ",
            "valid: 'auto', 'fixed', 'adaptive'",
        ),
        ({"draft_lengths": [0, 0]}, ".draft_lengths=[0, 0]: ", "valid: a list of different whole"),
        ({"draft_lengths": [0, True]}, ".draft_lengths=[0, True]: ", "e.g. [0, 1, 3]"),
        ({"spec_page": "yes"}, ".spec_page='yes': ", "valid: true or false"),
        ({"spec_page": 1}, ".spec_page=1: ", "valid: true or false"),
        ({"collect_folder": ""}, ".collect_folder='': ", "valid: a folder, as a string"),
        ({"collect_folder": True}, ".collect_folder=True: ", "valid: a folder, as a string"),
        ({**COLLECT, "collect_rate": 0}, ".collect_rate=0: ", "valid: a number above 0, up to 1"),
        ({**COLLECT, "collect_rate": 1.1}, ".collect_rate=1.1: ", "a number above 0, up to 1"),
        ({**COLLECT, "collect_rate": "0.5"}, ".collect_rate='0.5': ", "a number above 0, up to 1"),
        ({**COLLECT, "collect_max_bytes": 0}, ".collect_max_bytes=0: ", "whole number from 1 on"),
        ({**COLLECT, "collect_max_bytes": 1e9}, ".collect_max_bytes=1000000000.0: ", "whole nu"),
        ({**COLLECT, "collect_what": "texts"}, ".collect_what='texts': ", "did you mean 'text'? "),
        ({"collect_rate": 0.5}, ".collect_rate=0.5: ", "no effect without 'collect_folder'"),
        ({"collect_foldr": "/x"}, ".collect_foldr='/x': ", "did you mean 'collect_folder'? "),
        ({"draft_lengths": "0-3"}, ".draft_lengths='0-3': ", "e.g. [0, 1, 3]"),
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
