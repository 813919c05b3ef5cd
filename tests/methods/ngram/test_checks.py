"""Options of method ``ngram``."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.hooks.preflight import resolve_engine

SPEC = {"method": "ngram", "num_speculative_tokens": 3}


def check(**options: Any) -> None:
    resolve_engine("org/target", {**SPEC, **options})


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"prompt_lookup_max": 4},
        {"prompt_lookup_min": 2},
        {"prompt_lookup_min": 2, "prompt_lookup_max": 2},
        {"prompt_lookup_min": None, "prompt_lookup_max": 1},
        {"num_speculative_tokens_per_batch_size": [[1, 8, 3]]},
        {"rejection_sample_method": "block"},
    ],
)
def test_right_options_pass(options: dict[str, Any]) -> None:
    check(**options)


@pytest.mark.parametrize("key", ["prompt_lookup_min", "prompt_lookup_max"])
@pytest.mark.parametrize("value", [0, -1, 2.0, "three", True, [2]])
def test_lengths_are_whole_numbers_from_1_on(key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match="whole number from 1 to") as raised:
        check(**{key: value})
    assert (raised.value.option, raised.value.value) == (f"speculative_config.{key}", value)


def test_the_shortest_is_not_longer_than_the_longest() -> None:
    with pytest.raises(ConfigError, match="up to prompt_lookup_max, which is 3") as raised:
        check(prompt_lookup_min=4, prompt_lookup_max=3)
    assert raised.value.option == "speculative_config.prompt_lookup_min"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model", "ngram"),
        ("draft_sample_method", "probabilistic"),
        ("draft_tensor_parallel_size", 1),
        ("disable_padded_drafter_batch", True),
        ("max_model_len", 100),
        ("quantization", "ascend"),
    ],
)
def test_options_of_a_draft_model_are_refused(key: str, value: Any) -> None:
    with pytest.raises(
        ConfigError, match=r"(no effect|not possible) with method 'ngram'"
    ) as raised:
        check(**{key: value})
    assert raised.value.option == f"speculative_config.{key}"


def test_there_is_no_draft_loop() -> None:
    additional = {"ascend_spec": {"draft_loop": "ours"}}
    with pytest.raises(ConfigError, match="no effect with method 'ngram'"):
        resolve_engine("org/target", SPEC, additional)
    resolve_engine("org/target", SPEC, {"ascend_spec": {"verify_rule": "block"}})
