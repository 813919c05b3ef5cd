"""Which model a hybrid has, and whose options it takes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.zoo import MODELS, TARGET
from vllm_ascend_spec.config.examine import examine
from vllm_ascend_spec.errors import CheckpointError, ConfigError
from vllm_ascend_spec.hooks.preflight import resolve_engine
from vllm_ascend_spec.methods.hybrid.checks import DRAFTER, hybrid_of
from vllm_ascend_spec.methods.registry import BUILT_IN

EAGLE, DRAFT = str(MODELS / "eagle"), str(MODELS / "draft")
OPTION = "hybrid_model_method"


def resolve(model: str | None = EAGLE, **more: Any) -> Any:
    spec = {"method": "hybrid", "model": model, "num_speculative_tokens": 3, **more}
    return resolve_engine(TARGET, {k: v for k, v in spec.items() if v is not None})


@pytest.mark.parametrize(("model", "method"), [(EAGLE, "eagle"), (DRAFT, "draft_model")])
def test_the_checkpoint_tells_the_method(model: str, method: str) -> None:
    for named in (None, method):
        found = resolve(model, **{OPTION: named})
        assert (found.method, found.vllm_method) == ("hybrid", method)
        assert found.is_synchronous


@pytest.mark.parametrize(
    ("model", "named", "problem"),
    [
        (EAGLE, "ngram", "is no method with a draft model; valid: 'eagle', "),
        (EAGLE, "hybrid", "is no method with a draft model"),
        (EAGLE, 3, "is no method with a draft model"),
        ("org/nowhere", None, "has to be named: 'org/nowhere' is not on this machine; valid: "),
    ],
)
def test_what_cannot_be_told_is_refused(model: str | None, named: Any, problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        resolve(model, **{OPTION: named})
    assert raised.value.option == f"speculative_config.{OPTION}"
    assert problem in str(raised.value)


def test_a_model_is_asked_for() -> None:
    with pytest.raises(ConfigError, match=r"config\.model=None: method 'hybrid' needs it"):
        resolve(None)


def test_a_checkpoint_that_none_or_two_can_take_has_to_be_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match=f"{OPTION}=None: has to be named: none can take"):
        resolve(str(tmp_path))
    spec = {"method": "hybrid", "model": EAGLE, "num_speculative_tokens": 3}
    again = replace(BUILT_IN["eagle"], name="again")
    with pytest.raises(ConfigError, match="'eagle' and 'again' can take"):
        examine(TARGET, spec, methods={**BUILT_IN, "again": again}).resolved()


def test_the_models_own_checks_hold() -> None:
    with pytest.raises(CheckpointError, match="is not an EAGLE head"):
        resolve(DRAFT, **{OPTION: "eagle"})
    with pytest.raises(ConfigError, match=r"use_heterogeneous_vocab.* 'hybrid', only with"):
        resolve(EAGLE, use_heterogeneous_vocab=True)
    resolve(DRAFT, use_heterogeneous_vocab=True)


def test_the_trees_own_checks_hold() -> None:
    assert (
        resolve(suffix_decoding_max_tree_depth=12).options["suffix_decoding_max_tree_depth"] == 12
    )
    with pytest.raises(ConfigError, match="from 2 to 1024"):
        resolve(suffix_decoding_max_tree_depth=1)
    with pytest.raises(ConfigError, match="never drafts"):
        resolve(suffix_decoding_max_spec_factor=0.01)


def test_another_methods_model_comes_by_construction() -> None:
    """Everything about the model is its own record's, whoever it is."""
    other = replace(
        BUILT_IN["eagle"],
        name="other",
        vllm_method="mtp",
        required=("num_speculative_tokens",),
        drafters={"vllm": ("a.loop:Loop", "a.stock:Stock")},
    )
    found = hybrid_of(other)
    assert (found.vllm_method, found.required) == ("mtp", ("num_speculative_tokens",))
    assert found.drafters == {"vllm": (DRAFTER, "a.loop:Loop", "a.stock:Stock")}
    assert found.check_checkpoint is other.check_checkpoint
    others = replace(other, drafters_by_type={"b": other.drafters})
    assert hybrid_of(others).drafters_by_type == {"b": found.drafters}


def test_steps_cannot_be_scheduled_ahead() -> None:
    from vllm_ascend_spec.config.engine import EngineOptions

    spec = {"method": "hybrid", "model": EAGLE, "num_speculative_tokens": 3}
    with pytest.raises(ConfigError, match=r"--async-scheduling=True: not possible with .*'hybrid'"):
        resolve_engine(TARGET, spec, {}, EngineOptions(async_scheduling=True))
    warned = [w for w in resolve().warnings if w.startswith("Asynchronous scheduling is off")]
    assert len(warned) == 1
    assert resolve_engine(TARGET, spec, {}, EngineOptions(async_scheduling=False)).warnings == ()
