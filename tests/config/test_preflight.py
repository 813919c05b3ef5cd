"""Checks before anything expensive starts: one clear message per mistake."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.config.checkpoints import write_checkpoint, write_eagle
from vllm_ascend_spec.config.engine import EngineOptions
from vllm_ascend_spec.config.examine import NOTHING
from vllm_ascend_spec.config.options import DRAFT_SAMPLE_METHODS, MAX_DRAFT_TOKENS
from vllm_ascend_spec.config.port import check_port
from vllm_ascend_spec.errors import CheckpointError, ConfigError
from vllm_ascend_spec.hooks.preflight import resolve_engine
from vllm_ascend_spec.methods.registry import BUILT_IN as METHODS

Spec = dict[str, Any]


@pytest.fixture
def target(tmp_path: Path) -> str:
    return str(write_checkpoint(tmp_path / "target"))


@pytest.fixture
def eagle(tmp_path: Path) -> Spec:
    """Return a right ``speculative_config``."""
    folder = write_eagle(tmp_path / "eagle")
    return {"method": "eagle", "model": str(folder), "num_speculative_tokens": 3}


@pytest.fixture
def draft(tmp_path: Path) -> Spec:
    """Return another, of the other method."""
    folder = write_checkpoint(tmp_path / "draft")
    return {"method": "draft_model", "model": str(folder), "num_speculative_tokens": 3}


def refusal(model: str, spec: Any, additional: Any = NOTHING) -> ConfigError:
    """Return the error, whose message must begin with option and value and be one line."""
    with pytest.raises(ConfigError) as raised:
        resolve_engine(model, spec, additional)
    error = raised.value
    assert str(error).startswith(f"{error.option}={error.value!r}: ")
    assert "\n" not in str(error)
    return error


def test_right_configurations_pass(target: str, eagle: Spec, draft: Spec) -> None:
    resolve_engine(target, eagle)
    resolve_engine(target, draft)
    resolve_engine(target, eagle, {"ascend_spec": {"draft_loop": "ours"}})
    resolve_engine(None, eagle)
    resolve_engine("org/target", eagle)


def test_no_speculation_passes() -> None:
    resolve_engine("org/target", None)
    resolve_engine(None, None, {"other_plugin": {}})


@pytest.mark.parametrize("spec", ["eagle", ["eagle"], 3, [], 0, "", False, 0.0])
def test_speculative_config_must_be_an_object(target: str, spec: Any) -> None:
    error = refusal(target, spec)
    assert error.option == "speculative_config"
    assert "JSON object" in error.problem


@pytest.mark.parametrize("method", ["telepathy", "EAGLE", ""])
def test_unknown_method_is_refused_with_the_valid_ones(
    target: str, eagle: Spec, method: Any
) -> None:
    error = refusal(target, {**eagle, "method": method})
    assert (error.option, error.value) == ("speculative_config.method", method)
    for known in METHODS:
        assert repr(known) in error.problem


def test_missing_method_is_refused_with_the_valid_ones(target: str) -> None:
    error = refusal(target, {"num_speculative_tokens": 3})
    assert error.option == "speculative_config.method"
    assert "'eagle'" in error.problem


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("prompt_lookup_max", 4),
        ("prompt_lookup_min", 0),
        ("suffix_decoding_max_tree_depth", 0),
        ("no_such_option", "x"),
        ("no_such_option", ""),
        ("no_such_option", []),
    ],
)
def test_option_without_effect_is_refused_with_the_valid_ones(
    target: str, eagle: Spec, key: str, value: Any
) -> None:
    error = refusal(target, {**eagle, key: value})
    assert (error.option, error.value) == (f"speculative_config.{key}", value)
    assert "has no effect with method 'eagle'" in error.problem
    for other in METHODS.values():
        assert (repr(other.name) in error.problem) == (
            other.name == "eagle" or key in other.options
        )
    assert "valid: " in error.problem


def test_misspelt_option_is_refused_with_the_right_one(target: str, eagle: Spec) -> None:
    error = refusal(target, {**eagle, "draft_sampling_method": "greedy"})
    said = "; did you mean 'draft_sample_method'? valid: draft_sample_method, "
    assert said in error.problem
    assert "see docs/reference.md" in error.problem


@pytest.mark.parametrize(
    ("key", "value"),
    [("prompt_lookup_max", None), ("use_heterogeneous_vocab", False), ("parallel_drafting", False)],
)
def test_option_that_is_not_set_passes(target: str, eagle: Spec, key: str, value: Any) -> None:
    resolve_engine(target, {**eagle, key: value})


@pytest.mark.parametrize(
    ("key", "value"),
    [("frobnicate", None), ("prompt_lookup_max", False), ("use_heterogeneous_vocab", None)],
)
def test_what_vllm_does_not_take_for_not_set_is_refused(
    target: str, eagle: Spec, key: str, value: Any
) -> None:
    assert refusal(target, {**eagle, key: value}).option == f"speculative_config.{key}"


def test_options_may_be_written_with_dashes(target: str, eagle: Spec) -> None:
    spec = {key.replace("_", "-"): value for key, value in eagle.items()}
    resolve_engine(target, spec)
    error = refusal(target, {**spec, "no-such-option": 1})
    assert error.option == "speculative_config.no_such_option"


@pytest.mark.parametrize(
    ("method", "key"), [(m.name, key) for m in METHODS.values() for key in m.required]
)
def test_missing_option_is_asked_for(target: str, eagle: Spec, method: str, key: str) -> None:
    given = {"draft_model_config": {}, **eagle}
    spec = {name: given.get(name, "x") for name in METHODS[method].required if name != key}
    error = refusal(target, {**spec, "method": method})
    assert error.option == f"speculative_config.{key}"
    assert f"method {method!r} needs it" in error.problem


@pytest.mark.parametrize("length", [0, -1, MAX_DRAFT_TOKENS + 1, 2.5, 3.0, "-3", True, [3]])
def test_draft_length_out_of_range_is_refused(target: str, eagle: Spec, length: Any) -> None:
    error = refusal(target, {**eagle, "num_speculative_tokens": length})
    assert error.option == "speculative_config.num_speculative_tokens"
    assert error.value is length
    assert f"from 1 to {MAX_DRAFT_TOKENS}" in error.problem


@pytest.mark.parametrize("length", [1, MAX_DRAFT_TOKENS])
def test_shortest_and_longest_draft_pass(target: str, eagle: Spec, length: int) -> None:
    resolve_engine(target, {**eagle, "num_speculative_tokens": length})


@pytest.mark.parametrize("rule", ["strict", 3, ["block"], None, "", False])
def test_unknown_acceptance_rules_are_refused(target: str, eagle: Spec, rule: Any) -> None:
    error = refusal(target, {**eagle, "rejection_sample_method": rule})
    assert error.option == "speculative_config.rejection_sample_method"
    assert "valid: 'standard', 'block', 'synthetic'" in error.problem


SYNTHETIC = {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": 2.5}


@pytest.mark.parametrize(
    "options", [{"rejection_sample_method": m} for m in ("standard", "block")] + [SYNTHETIC]
)
def test_acceptance_rules_pass(target: str, eagle: Spec, draft: Spec, options: Spec) -> None:
    resolve_engine(target, {**eagle, **options})
    resolve_engine(target, {**draft, **options})
    dashed = {key.replace("_", "-"): value for key, value in options.items()}
    resolve_engine(target, {**eagle, **dashed})


def test_acceptance_rules_that_contradict_each_other_are_refused(target: str, eagle: Spec) -> None:
    ours = {"ascend_spec": {"verify_rule": "token"}}
    for options in ({"rejection_sample_method": "block"}, SYNTHETIC):
        error = refusal(target, {**eagle, **options}, ours)
        assert (error.option, error.value) == ("additional_config.ascend_spec.verify_rule", "token")
        assert options["rejection_sample_method"] in error.problem
    resolve_engine(target, eagle, ours)


def test_synthetic_options_are_checked(target: str, eagle: Spec) -> None:
    wrong = {"synthetic_acceptance_length": 9}
    error = refusal(target, {**eagle, **wrong})
    assert "needs speculative_config.rejection_sample_method='synthetic'" in error.problem
    error = refusal(target, {**eagle, **SYNTHETIC, **wrong})
    assert error.problem == "valid: a number from 1 to 4"


def test_draft_length_is_checked_before_what_depends_on_it(target: str, eagle: Spec) -> None:
    error = refusal(target, {**eagle, **SYNTHETIC, "num_speculative_tokens": "-3"})
    assert error.option == "speculative_config.num_speculative_tokens"


@pytest.mark.parametrize("how", ["sometimes", "Greedy", 1, None, ""])
def test_unknown_ways_to_pick_drafts_are_refused(target: str, eagle: Spec, how: Any) -> None:
    error = refusal(target, {**eagle, "draft_sample_method": how})
    assert error.option == "speculative_config.draft_sample_method"
    assert error.problem.endswith("valid: 'auto', 'greedy', 'probabilistic'")


def test_ways_to_pick_drafts_are_those_of_vllm_and_auto() -> None:
    from vllm.config.speculative import DraftSampleMethod

    assert ("auto", *get_args(DraftSampleMethod)) == DRAFT_SAMPLE_METHODS


@pytest.mark.parametrize("additional", [{"ascend_spec": {"draft_lop": 1}}, {"ascend_spec": 1}])
def test_our_own_options_are_checked_with_and_without_speculation(
    target: str, eagle: Spec, additional: Any
) -> None:
    for spec in (eagle, None):
        assert refusal(target, spec, additional).option.startswith("additional_config.ascend_spec")


def test_our_own_options_are_refused_without_speculation() -> None:
    section = {"verify_rule": "block"}
    error = refusal("org/target", None, {"ascend_spec": section})
    assert (error.option, error.value) == ("additional_config.ascend_spec", section)
    assert "without --speculative-config" in error.problem
    resolve_engine("org/target", None, {"ascend_spec": {}})
    resolve_engine("org/target", None, {"ascend_spec": None})


def test_checkpoint_is_checked_against_the_target(tmp_path: Path, eagle: Spec) -> None:
    other = write_checkpoint(tmp_path / "other", vocab_size=99)
    error = refusal(str(other), eagle)
    assert isinstance(error, CheckpointError)
    assert (error.option, error.value) == ("speculative_config.model", eagle["model"])


def test_target_that_is_not_there_is_named(tmp_path: Path, eagle: Spec) -> None:
    missing = str(tmp_path / "missing")
    error = refusal(missing, eagle)
    assert (error.option, error.value) == ("model", missing)


def test_draft_that_is_not_there_is_named(target: str, eagle: Spec) -> None:
    error = refusal(target, {**eagle, "model": "/no/such/draft"})
    assert (error.option, error.value) == ("speculative_config.model", "/no/such/draft")


@pytest.mark.parametrize("model", [3, ["a"], {"path": "x"}])
def test_draft_must_be_named_by_a_string(target: str, eagle: Spec, model: Any) -> None:
    error = refusal(target, {**eagle, "model": model})
    assert error.option == "speculative_config.model"
    assert "folder or a hub's name" in error.problem


def test_other_vocabulary_passes_where_it_is_allowed(tmp_path: Path, draft: Spec) -> None:
    other = str(write_checkpoint(tmp_path / "other", vocab_size=99))
    assert "vocab_size" in refusal(other, draft).problem
    resolve_engine(other, {**draft, "use_heterogeneous_vocab": True})


def test_no_checkpoint_is_looked_for_with_dummy_weights(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "weightless", {})
    spec = {"method": "eagle", "model": str(folder), "num_speculative_tokens": 2}
    refusal("org/target", spec)
    resolve_engine("org/target", spec, engine=EngineOptions(load_format="dummy"))


@pytest.fixture
def listener() -> Iterator[int]:
    """Return a port on which this process listens."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", None])
def test_port_that_is_taken_is_refused(listener: int, host: str | None) -> None:
    with pytest.raises(ConfigError, match="choose a free port") as raised:
        check_port(host, listener)
    assert (raised.value.option, raised.value.value) == ("--port", listener)


def test_free_port_passes(listener: int) -> None:
    check_port("127.0.0.1", 0)
    check_port("127.0.0.2", listener)


def test_addresses_that_cannot_be_bound_are_left_to_vllm() -> None:
    check_port("203.0.113.1", 8000)
    check_port("no.such.host.invalid", 8000)
