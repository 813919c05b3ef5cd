"""Flags and numbers that are given as text mean what they say, with a warning."""

from __future__ import annotations

from typing import Any

import pytest

from tests.zoo import SPECS, TARGET
from vllm_ascend_spec.config.options import OPTIONS
from vllm_ascend_spec.config.string_values import with_texts_read
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.hooks.preflight import resolve_engine

PADDED = "disable_padded_drafter_batch"


@pytest.mark.parametrize(("text", "meant"), [("False", False), ("true", True), ("FALSE", False)])
def test_texts_are_flags(text: str, meant: bool) -> None:
    found, (warning,) = with_texts_read({"method": "eagle", PADDED: text})
    assert found == {"method": "eagle", PADDED: meant}
    assert f"speculative_config.{PADDED}={text!r} is text" in warning


def test_every_flag_and_nothing_else() -> None:
    found, warnings = with_texts_read(dict.fromkeys(OPTIONS, "true"))
    flags = {name for name, value in found.items() if value is True}
    assert flags == {
        "enforce_eager",
        PADDED,
        "disable_eagle_block_drop",
        "disable_lookahead_block_hashes",
        "use_local_argmax_reduction",
        "parallel_drafting",
        "use_heterogeneous_vocab",
    }
    assert len(warnings) == len(flags)


WHOLE = {
    "num_speculative_tokens",
    "disable_by_batch_size",
    "prompt_lookup_min",
    "prompt_lookup_max",
    "dspark_draft_topk",
    "suffix_decoding_max_tree_depth",
    "suffix_decoding_max_cached_requests",
    "max_model_len",
    "draft_tensor_parallel_size",
}
NUMBERS = {
    "suffix_decoding_max_spec_factor",
    "suffix_decoding_min_token_prob",
    "synthetic_acceptance_length",
}


def test_every_number_and_nothing_else() -> None:
    found, warnings = with_texts_read(dict.fromkeys(OPTIONS, "3"))
    assert {name for name, value in found.items() if value == 3} == WHOLE | NUMBERS - {
        "suffix_decoding_min_token_prob"
    }
    assert all(type(value) in (int, str) for value in found.values())
    found, _ = with_texts_read(dict.fromkeys(OPTIONS, "1.0"))
    assert {name for name, value in found.items() if value == 1.0} == NUMBERS
    assert any("'3' is text; it is read as 3; write" in warning for warning in warnings)


@pytest.mark.parametrize("text", ["-3", "3x", "", "0x3", "3 ", "٣", "1_0", "1e1", "9" * 5000])
def test_other_texts_are_no_numbers(text: str) -> None:
    with pytest.raises(ConfigError, match="valid: a whole number from 1"):
        resolve_engine(TARGET, {**SPECS["eagle"], "num_speculative_tokens": text})


def test_a_number_out_of_range_is_refused_as_it_was_given() -> None:
    with pytest.raises(ConfigError, match=r"='9999': valid: a whole number from 1 to 64"):
        resolve_engine(TARGET, {**SPECS["eagle"], "num_speculative_tokens": "9999"})


def test_the_warning_is_among_what_a_person_is_told() -> None:
    found = resolve_engine(TARGET, {**SPECS["eagle"], PADDED: "False"})
    assert found is not None
    assert found.options[PADDED] is False
    assert any(PADDED in warning for warning in found.warnings)
    plain = resolve_engine(TARGET, {**SPECS["eagle"], PADDED: False})
    assert plain is not None
    assert not any(PADDED in warning for warning in plain.warnings)


@pytest.mark.parametrize("value", ["no", "", "0", 0])
def test_other_texts_are_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match="valid: true or false"):
        resolve_engine(TARGET, {**SPECS["eagle"], PADDED: value})


def test_vllm_takes_the_text_for_the_same() -> None:
    from vllm.engine.arg_utils import EngineArgs

    from tests.engines import ENGINE

    texts = {PADDED: "False", "max_model_len": "200", "num_speculative_tokens": "2"}
    args = EngineArgs(**ENGINE, speculative_config={**SPECS["eagle"], **texts})
    config = args.create_engine_config()
    assert config.speculative_config is not None
    assert config.speculative_config.disable_padded_drafter_batch is False
    assert config.speculative_config.draft_model_config.max_model_len == 200
    assert config.speculative_config.num_speculative_tokens == 2
