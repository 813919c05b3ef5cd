"""Old names come to the speculative config that a person would write today."""

from __future__ import annotations

from typing import Any

import pytest

from tests.zoo import EVERY, SPECS, TARGET
from vllm_ascend_spec.config.options import OPTIONS
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.hooks.preflight import resolve_engine
from vllm_ascend_spec.legacy.drafts import DEFAULT_DRAFTS
from vllm_ascend_spec.legacy.names import LEGACY, given_of, modern, told

DRAFT = SPECS["draft_model"]["model"]
MODEL, METHOD, K = "speculative_model", "speculative_method", "num_speculative_tokens"
LIMIT, WIDTH = "speculative_disable_by_batch_size", "speculative_draft_tensor_parallel_size"
LONGEST, SHORTEST = "ngram_prompt_lookup_max", "ngram_prompt_lookup_min"
RULE = "spec_decoding_acceptance_method"
WITH_CHECKPOINT = [
    name for name, spec in EVERY.items() if "zoo" in str(spec.get("model")) and name != "mtp"
]


@pytest.mark.parametrize(
    ("given", "spec"),
    [
        (
            {MODEL: DRAFT, K: 5, WIDTH: 1, LIMIT: 4},
            {
                "method": "draft_model",
                "model": DRAFT,
                K: 5,
                "draft_tensor_parallel_size": 1,
                "disable_by_batch_size": 4,
            },
        ),
        # vLLM's default then was the shortest n-gram that there is; today it is the longest.
        (
            {MODEL: "[ngram]", K: 5, LONGEST: 4},
            {"method": "ngram", K: 5, "prompt_lookup_max": 4, "prompt_lookup_min": 1},
        ),
        (
            {MODEL: "ngram", K: 5, LONGEST: 4, SHORTEST: 2},
            {"method": "ngram", K: 5, "prompt_lookup_max": 4, "prompt_lookup_min": 2},
        ),
        ({METHOD: "suffix", K: 7}, {"method": "suffix", K: 7}),
        (
            {MODEL: "some/head", METHOD: "eagle", K: 2, "speculative_max_model_len": 300},
            {"method": "eagle", "model": "some/head", K: 2, "max_model_len": 300},
        ),
    ],
)
def test_what_old_names_come_to(given: dict[str, Any], spec: dict[str, Any]) -> None:
    found = modern(given, None)
    assert found.spec == spec
    assert next(iter(found.spec)) == "method"
    assert found.without_effect == ()


def test_options_have_the_names_of_today() -> None:
    assert {one.key for one in LEGACY.values()} - {None} <= OPTIONS.keys()


@pytest.mark.parametrize("method", WITH_CHECKPOINT)
def test_a_checkpoint_tells_its_method(method: str) -> None:
    spec = EVERY[method]
    found = modern({MODEL: spec["model"], K: 2}, None)
    assert found.spec is not None
    assert found.spec["method"] == {"hybrid": "eagle"}.get(method, spec["method"])


def test_a_target_with_layers_that_draft() -> None:
    target = SPECS["mtp"]["model"]
    assert modern({K: 2}, None, target).spec == {"method": "mtp", K: 2}
    assert modern({K: 2}, None, "deepseek-ai/DeepSeek-R1").spec == {"method": "mtp", K: 2}
    both = modern({MODEL: target, K: 2}, None, target)
    assert both.spec == {"method": "mtp", "model": target, K: 2}
    with pytest.raises(ConfigError, match="has no effect without --speculative-model"):
        modern({K: 2}, None, TARGET)


def test_the_number_of_drafts_is_the_checkpoints_or_the_usual_one() -> None:
    head = modern({MODEL: SPECS["mlp_speculator"]["model"]}, None)
    assert head.spec is not None
    assert head.spec[K] == 3
    assert "3 drafts per step as " in told({MODEL: "x"}, head)
    eagle = modern({MODEL: SPECS["eagle"]["model"]}, None)
    assert eagle.spec is not None
    assert eagle.spec[K] == DEFAULT_DRAFTS


def test_what_has_no_effect_is_named() -> None:
    given = {"use_v2_block_manager": True, "num_lookahead_slots": 4, RULE: "rejection_sampler"}
    found = modern(given, None)
    assert found.spec is None
    line = told(given, found)
    for name in ("--use-v2-block-manager", "--num-lookahead-slots", "--spec-decoding-acceptance"):
        assert name in line
    assert "Today" not in line
    # A config beside them stays what it is.
    assert modern(given, {"method": "ngram", K: 3}).spec == {"method": "ngram", K: 3}


def test_the_line_has_the_modern_form() -> None:
    given = {MODEL: "[ngram]", K: 5, "use_v2_block_manager": True}
    found = modern(given, None)
    flags = told(given, found)
    assert "--speculative-model, --num-speculative-tokens, --use-v2-block-manager" in flags
    assert '--speculative-config \'{"method": "ngram", "num_speculative_tokens": 5}\'' in flags
    script = told(given, found, as_flags=False)
    assert "speculative_config={'method': 'ngram', 'num_speculative_tokens': 5}" in script
    assert "\n" not in flags + script


@pytest.mark.parametrize(
    ("given", "spec", "option", "problem"),
    [
        ({MODEL: "x", K: 2}, {"method": "ngram", K: 2}, "--speculative-model", "contradicts"),
        ({K: 2}, {"method": "ngram", K: 2}, "--num-speculative-tokens", "contradicts"),
        ({K: 2}, None, "--num-speculative-tokens", "has no effect without --speculative-model"),
        ({LIMIT: 2}, None, "--speculative-disable-by-batch-size", "has no effect without"),
        ({MODEL: "[ngram]", METHOD: "eagle"}, None, "--speculative-method", "contradicts"),
        ({RULE: "typical_acceptance_sampler"}, None, "--spec-decoding-acc", "change the output"),
    ],
)
def test_contradictions_are_refused(
    given: dict[str, Any], spec: Any, option: str, problem: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        modern(given, spec)
    assert str(raised.value).startswith(option)
    assert problem in str(raised.value)


def test_messages_of_a_script_have_its_names() -> None:
    with pytest.raises(ConfigError, match=r"^num_speculative_tokens=2: .* speculative_model"):
        modern({K: 2}, None, as_flags=False)


def test_what_comes_of_it_is_checked_as_ever() -> None:
    found = modern({MODEL: DRAFT, K: 5, LONGEST: 4}, None)
    with pytest.raises(ConfigError, match=r"^speculative_config\.prompt_lookup_max=4: "):
        resolve_engine(TARGET, found.spec)


def test_given_are_those_that_somebody_gave() -> None:
    assert given_of({MODEL: None, K: 3, "model": "x"}) == {K: 3}


@pytest.mark.parametrize("off", ["", "None"])
def test_a_template_leaves_speculation_off(off: str) -> None:
    """vLLM took both for an option that is not given; they are not names of models."""
    assert given_of({MODEL: off, "speculative_model_quantization": off}) == {}
    with pytest.raises(ConfigError, match="has no effect without --speculative-model"):
        modern(given_of({MODEL: off, K: 3}), None, TARGET)
