"""A method that vLLM's own config does not know, carried through it by one that it knows."""

from __future__ import annotations

from dataclasses import replace as replace_record
from typing import Any

import pytest
from vllm.config.utils import replace as replace_config
from vllm.engine.arg_utils import EngineArgs

from tests.hooks.test_attach import ENGINE
from vllm_ascend_spec.config.engine import SpecInput
from vllm_ascend_spec.config.method import ALWAYS, Method
from vllm_ascend_spec.config.resolved import ATTRIBUTE, speculation_of
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.hooks import attach, preflight
from vllm_ascend_spec.hooks.method_alias import speculative_config_for_vllm
from vllm_ascend_spec.methods.registry import BUILT_IN


def check_echo(request: SpecInput) -> None:
    if request.spec.get("echo_distance", 1) < 1:
        raise ConfigError("speculative_config.echo_distance", 0, "valid: from 1 on")


ECHO = Method(
    name="echo",
    about="the last tokens again",
    options=ALWAYS | {"echo_distance"},
    vllm_method="ngram",
    checks=(check_echo,),
    drafters={"vllm": ("another_package.echo:Echo",)},
)
SPEC = {"method": "echo", "num_speculative_tokens": 4, "echo_distance": 2}


@pytest.fixture(autouse=True)
def _echo(monkeypatch: pytest.MonkeyPatch) -> None:
    methods = {**BUILT_IN, "echo": ECHO}
    for module in (preflight, attach):
        monkeypatch.setattr(module, "all_methods", lambda: methods)


@pytest.mark.parametrize(
    "given",
    [
        {"speculative_config": SPEC},
        {
            "speculative_config": {"echo-distance": 2, "num-speculative-tokens": 4},
            "spec_method": "echo",
        },
    ],
    ids=["keys", "short flag"],
)
def test_vllm_gets_the_alias_and_we_keep_the_method(given: dict[str, Any]) -> None:
    args = EngineArgs(**ENGINE, **given)
    config = args.create_engine_config()
    built = config.speculative_config
    assert (built.method, built.num_speculative_tokens) == ("ngram", 4)
    found = speculation_of(config)
    assert (found.method, found.vllm_method) == ("echo", "ngram")
    assert found.drafter == ECHO.drafters["vllm"]
    assert found.options == {"echo_distance": 2}
    # What the person gave is as it was.
    assert args.speculative_config == given["speculative_config"]
    assert args.spec_method == given.get("spec_method")
    assert speculation_of(replace_config(config)) == found


def test_its_own_rules_hold() -> None:
    with pytest.raises(ConfigError, match="echo_distance=0: valid: from 1 on"):
        EngineArgs(**ENGINE, speculative_config={**SPEC, "echo_distance": 0}).create_engine_config()


def test_options_of_the_alias_are_not_its_own() -> None:
    with pytest.raises(ConfigError, match="has no effect with method 'echo', only with 'ngram'"):
        EngineArgs(
            **ENGINE, speculative_config={**SPEC, "prompt_lookup_max": 3}
        ).create_engine_config()


def test_a_config_built_by_hand_cannot_have_it() -> None:
    config = EngineArgs(**ENGINE, speculative_config=SPEC).create_engine_config()
    vars(config.speculative_config).pop(ATTRIBUTE)
    config.speculative_config.method = "echo"
    with pytest.raises(ConfigError, match="build it by EngineArgs"):
        attach.attach_resolved(config, device=None)  # type: ignore[arg-type]


def test_without_an_alias_vllm_refuses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    methods = {**BUILT_IN, "echo": replace_record(ECHO, vllm_method=None)}
    monkeypatch.setattr(preflight, "all_methods", lambda: methods)
    with pytest.raises(ValueError, match="Input should be"):
        EngineArgs(**ENGINE, speculative_config=SPEC).create_engine_config()


def test_vllm_gets_the_schedule_that_a_limit_stands_for() -> None:
    spec = {"method": "ngram", "num_speculative_tokens": 4, "disable_by_batch_size": 2}
    config = EngineArgs(**ENGINE, speculative_config=spec).create_engine_config()
    shown = config.speculative_config.num_speculative_tokens_per_batch_size
    assert [list(row) for row in shown] == [[1, 2, 4], [3, 3, 0]]


@pytest.mark.parametrize(("asked", "is_ahead"), [(None, False), (False, False)])
def test_steps_are_not_scheduled_ahead_where_drafting_needs_their_tokens(
    asked: bool | None, is_ahead: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM knows that of its own methods, and not of one that is carried by another."""
    echo = replace_record(ECHO, vllm_method="eagle", drafts_on_host=True)
    args = EngineArgs(**ENGINE, async_scheduling=asked, speculative_config=SPEC)
    monkeypatch.setattr(preflight, "all_methods", lambda: {**BUILT_IN, "echo": echo})
    with speculative_config_for_vllm(args, preflight.asked_of(args), preflight.resolve_args(args)):
        assert args.async_scheduling is is_ahead
    assert args.async_scheduling is asked


def test_they_may_be_where_it_does_not() -> None:
    args = EngineArgs(**ENGINE, speculative_config=SPEC)
    with speculative_config_for_vllm(args, preflight.asked_of(args), preflight.resolve_args(args)):
        assert args.async_scheduling is None
