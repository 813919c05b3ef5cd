"""Our section among those of other people."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_ascend_spec.config.additional import check_additional, is_misspelt, section_of
from vllm_ascend_spec.config.schema import SpecOptions
from vllm_ascend_spec.errors import ConfigError

# Of vllm-ascend 0.30.0rc2, and some that others might have.
OTHER_PEOPLES = (
    "ascend_compilation_config",
    "ascend_fusion_config",
    "ascend_warmup_config",
    "ascend_log_path",
    "ascend_scheduler_config",
    "ascend_speculative_config",
    "dynamic_spec_config",
    "rejection_sampler_config",
    "vllm_ascend",
    "ascend",
    "spec",
    "speculators",
    "torchair_graph_config",
    "",
)


@pytest.mark.parametrize("key", OTHER_PEOPLES)
def test_other_peoples_keys_are_theirs(key: str) -> None:
    assert check_additional({key: 3}) == {}


@pytest.mark.parametrize(
    "key", ["ascend-spec", "ascendspec", "AscendSpec", "ascend_spce", "asced_spec", "ascend.specs"]
)
def test_misspelt_name_of_our_section_is_refused(key: str) -> None:
    with pytest.raises(ConfigError, match="would be ignored; valid: 'ascend_spec'") as raised:
        check_additional({"other": 1, key: {"verify_rule": "block"}})
    assert raised.value.option == f"additional_config.{key}"


@pytest.mark.parametrize(
    "key",
    ["speculative_config", "speculative-config", "speculative_model", "num_speculative_tokens"],
)
def test_speculation_is_asked_for_elsewhere(key: str) -> None:
    with pytest.raises(ConfigError, match="is asked for by --speculative-config") as raised:
        check_additional({key: {"method": "ngram"}})
    assert raised.value.option == f"additional_config.{key}"


@pytest.mark.parametrize(
    "key", ["method", "model", "num-speculative-tokens", "ngram_prompt_lookup_max"]
)
def test_so_it_is_in_our_section(key: str) -> None:
    with pytest.raises(ConfigError, match="is an option of --speculative-config") as raised:
        SpecOptions.from_mapping({key: 3})
    assert raised.value.option == f"additional_config.ascend_spec.{key}"


def test_name_of_the_package_is_not_that_of_the_section() -> None:
    assert is_misspelt("vllm_ascend_spec")
    assert is_misspelt("vllm-ascend-spec")


@pytest.mark.parametrize("key", ["tree", "draft_length", "draft_window", "collect_folder"])
def test_options_beside_our_section_are_refused(key: str) -> None:
    with pytest.raises(ConfigError, match="write it within 'ascend_spec': ") as raised:
        check_additional({key: 15, "ascend_spec": {}})
    assert raised.value.option == f"additional_config.{key}"


@pytest.mark.parametrize("given", [None, [], "x", 3, 0, "", False, [{"ascend_spec": {}}]])
def test_anything_but_an_object_is_refused(given: Any) -> None:
    with pytest.raises(ConfigError, match="must be a JSON object") as raised:
        check_additional(given)
    assert raised.value.option == "additional_config"


def test_what_vllm_can_hash_is_taken_in_python() -> None:
    class Hashed:
        def compute_hash(self) -> str:
            return "1"

    assert check_additional(Hashed()) == {}


def test_section_is_found() -> None:
    section = {"verify_rule": "block"}
    assert check_additional({"ascend_spec": section, 3: 4}) is section
    assert section_of({"ascend_spec": None}) == {}
