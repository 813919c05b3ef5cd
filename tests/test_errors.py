"""The exception tree."""

from __future__ import annotations

import pickle

import pytest

import vllm_ascend_spec
from vllm_ascend_spec import errors
from vllm_ascend_spec.errors import (
    AscendSpecError,
    BackendUnavailableError,
    CheckpointError,
    ConfigError,
    CustomProposerError,
    ExtensionError,
    PlatformError,
    UnguardedScriptError,
    UnsupportedVersionError,
    did_you_mean,
)


@pytest.mark.parametrize(
    ("error", "bases"),
    [
        (ConfigError, (AscendSpecError, ValueError)),
        (CheckpointError, (ConfigError,)),
        (UnsupportedVersionError, (AscendSpecError, RuntimeError)),
        (BackendUnavailableError, (AscendSpecError, RuntimeError)),
        (CustomProposerError, (AscendSpecError, RuntimeError)),
        (PlatformError, (AscendSpecError, RuntimeError)),
        (ExtensionError, (AscendSpecError, RuntimeError)),
        (UnguardedScriptError, (AscendSpecError, RuntimeError)),
    ],
)
def test_tree(error: type, bases: tuple[type, ...]) -> None:
    assert error.__bases__ == bases


def test_tree_in_the_docstring_names_every_error() -> None:
    assert errors.__doc__ is not None
    defined = [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, Exception)
    ]
    for error in defined:
        assert error.__name__ in errors.__doc__
        assert getattr(vllm_ascend_spec, error.__name__) is error


def test_config_error_tells_option_value_and_problem() -> None:
    error = ConfigError("speculative_config.method", "telepathy", "valid: 'eagle'")
    assert str(error) == "speculative_config.method='telepathy': valid: 'eagle'"
    assert (error.option, error.value, error.problem) == (
        "speculative_config.method",
        "telepathy",
        "valid: 'eagle'",
    )


@pytest.mark.parametrize("error", [ConfigError, CheckpointError])
@pytest.mark.parametrize("value", ["x", None, 3, {"a": [1]}])
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_config_errors_survive_pickling(
    error: type[ConfigError], value: object, protocol: int
) -> None:
    original = error("option", value, "problem")
    copy = pickle.loads(pickle.dumps(original, protocol))
    assert type(copy) is error
    assert str(copy) == str(original)
    assert (copy.option, copy.value, copy.problem) == ("option", value, "problem")


@pytest.mark.parametrize(
    "error",
    [UnsupportedVersionError, PlatformError, BackendUnavailableError, CustomProposerError],
)
def test_other_errors_survive_pickling(error: type[Exception]) -> None:
    copy = pickle.loads(pickle.dumps(error("message")))
    assert type(copy) is error
    assert str(copy) == "message"


METHODS = ("eagle", "eagle3", "draft_model", "custom_class")


@pytest.mark.parametrize(
    ("given", "nearest"),
    [
        ("egale", "eagle"),
        ("EAGLE-3", "eagle3"),
        ("draft-model", "draft_model"),
        ("CustomClass", "custom_class"),
        ("telepathy", None),
        ("", None),
        (None, None),
        (3, None),
        (["eagle"], None),
    ],
)
def test_the_nearest_name_is_asked_for(given: object, nearest: str | None) -> None:
    said = f"did you mean {nearest!r}? " if nearest is not None else ""
    assert did_you_mean(given, METHODS) == said


def test_how_like_it_has_to_be_can_be_said() -> None:
    assert did_you_mean("--max-log-len", ["--max-model-len"])
    assert not did_you_mean("--max-log-len", ["--max-model-len"], likeness=0.9)
