"""The resolved record travels with vLLM's configuration, to every copy and every process."""

from __future__ import annotations

import copy
import json
import multiprocessing
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from vllm.config.utils import replace as replace_config
from vllm.engine.arg_utils import EngineArgs

from tests.zoo import SPECS, TARGET
from vllm_ascend_spec.config.resolved import ATTRIBUTE, SpecConfig, speculation_of
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.hooks import attach
from vllm_ascend_spec.methods.registry import BUILT_IN as METHODS

ENGINE: dict[str, Any] = {
    "model": TARGET,
    "dtype": "float32",
    "max_model_len": 512,
    "max_num_seqs": 8,
    "enforce_eager": True,
}
SCHEDULE = [[1, 4, 3], [5, 8, 1]]
EAGLE = {
    **SPECS["eagle"],
    "draft_sample_method": "probabilistic",
    "num_speculative_tokens_per_batch_size": SCHEDULE,
}
OURS = {"ascend_spec": {"verify_rule": "block", "draft_loop": "stock"}}


def build(spec: Any, additional: Any = None, **other: Any) -> Any:
    values = {**ENGINE, "speculative_config": spec, "additional_config": additional or {}, **other}
    return EngineArgs(**values).create_engine_config()


@pytest.fixture(scope="module")
def config() -> Any:
    return build(dict(EAGLE), OURS)


def test_every_value_is_there_with_its_source(config: Any) -> None:
    found = speculation_of(config)
    assert (found.device, found.method, found.max_k) == ("cpu", "eagle", 3)
    assert found.schedule == ((1, 4, 3), (5, 8, 1))
    assert (found.draft_sample_method, found.rule) == ("probabilistic", "block")
    assert (found.draft_loop, found.verify_backend) == ("stock", None)
    assert found.sources["rule"] == "additional_config.ascend_spec.verify_rule"
    assert found.sources["draft_loop"] == "additional_config.ascend_spec.draft_loop"
    assert found.sources["schedule"] == "speculative_config.num_speculative_tokens_per_batch_size"
    assert found.sources["verify_backend"] == "default"
    json.dumps(found.as_json())


COPIES: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda config: pickle.loads(pickle.dumps(config)),
    "deepcopy": copy.deepcopy,
    "replace": replace_config,
    "with_hf_config": lambda config: config.with_hf_config(config.model_config.hf_config),
}


@pytest.mark.parametrize("how", COPIES)
def test_copies_have_it_too(config: Any, how: str) -> None:
    copied = COPIES[how](config)
    assert copied is not config
    assert speculation_of(copied) == speculation_of(config)


def tell(queue: Any, config: Any) -> None:
    """Say in another process what the configuration carries."""
    queue.put(speculation_of(config))


def test_a_spawned_process_has_it_too(config: Any) -> None:
    spawn = multiprocessing.get_context("spawn")
    queue = spawn.Queue()
    process = spawn.Process(target=tell, args=(queue, config))
    process.start()
    try:
        assert queue.get(timeout=300) == speculation_of(config)
    finally:
        process.join(60)
    assert process.exitcode == 0


@pytest.mark.parametrize("method", [name for name in SPECS if METHODS[name].vllm_method is None])
def test_a_config_built_by_hand_is_resolved_the_same(method: str) -> None:
    fixed = {"ascend_spec": {"draft_length": "fixed"}}
    by_args = speculation_of(found := build(dict(SPECS[method]), fixed))
    vars(found.speculative_config).pop(ATTRIBUTE)
    by_hand = speculation_of(replace_config(found))
    # vLLM fills in options, so those are more.
    assert set(by_args.options.items()) <= set(by_hand.options.items())
    same = {"options": by_args.options, "sources": by_args.sources}
    assert replace(by_hand, **same) == by_args


def test_vllm_is_told_that_drafts_are_sampled_and_no_schedule() -> None:
    config = build(dict(SPECS["eagle"]))
    found = speculation_of(config)
    assert (found.draft_length, found.draft_lengths) == ("auto", (0, 3))
    assert found.schedule is None
    assert config.speculative_config.num_speculative_tokens_per_batch_size is None
    assert config.speculative_config.draft_sample_method == "probabilistic"
    assert found.samples_drafts


def test_a_config_built_by_hand_has_a_fixed_k() -> None:
    """vLLM's configuration says how drafts are picked; whether K may change was nobody asked."""
    config = build(dict(SPECS["eagle"], draft_sample_method="greedy"))
    vars(config.speculative_config).pop(ATTRIBUTE)
    by_hand = speculation_of(replace_config(config))
    assert (by_hand.draft_length, by_hand.draft_lengths) == ("fixed", None)
    assert "by hand" in by_hand.sources["draft_length"]
    assert by_hand.draft_sample_method == "greedy"


def test_a_config_built_by_hand_is_checked(config: Any) -> None:
    other = copy.deepcopy(config)
    vars(other.speculative_config).pop(ATTRIBUTE)
    other.speculative_config.num_speculative_tokens = 65
    with pytest.raises(ValueError, match="a whole number from 1 to 64 on the CPU"):
        replace_config(other)


def test_a_config_built_by_hand_has_no_page(config: Any) -> None:
    other = copy.deepcopy(config)
    vars(other.speculative_config).pop(ATTRIBUTE)
    other.additional_config = {"ascend_spec": {"spec_page": True}}
    with pytest.raises(ValueError, match="the page needs an HTTP server"):
        replace_config(other)


def test_a_config_of_another_platform_has_none(config: Any) -> None:
    other = copy.deepcopy(config)
    vars(other.speculative_config).pop(ATTRIBUTE)
    with pytest.raises(RuntimeError, match="not built on a platform"):
        speculation_of(other)


def test_nothing_waits_once_a_config_is_built(config: Any) -> None:
    del config
    assert attach._waiting.get() is None
    with pytest.raises(ZeroDivisionError), attach.waiting(None):
        raise ZeroDivisionError
    assert attach._waiting.get() is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vllm_method": "ngram"}, "speculative_config.method='ngram': vLLM made 'eagle' of it"),
        ({"max_k": 7}, "speculative_config.num_speculative_tokens=7: vLLM made 3 of it"),
    ],
)
def test_what_vllm_makes_otherwise_is_one_error(
    config: Any, change: dict[str, Any], message: str
) -> None:
    found: SpecConfig = speculation_of(config)
    attach.confirm(config, found)
    with pytest.raises(ConfigError) as raised:
        attach.confirm(config, replace(found, **change))
    assert str(raised.value) == message


def test_vllm_that_changes_k_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    stock = EngineArgs.create_speculative_config

    def create_speculative_config(self: Any, *args: Any, **kwargs: Any) -> Any:
        made = stock(self, *args, **kwargs)
        made.num_speculative_tokens = 2
        return made

    monkeypatch.setattr(EngineArgs, "create_speculative_config", create_speculative_config)
    with pytest.raises(ConfigError, match="num_speculative_tokens=3: vLLM made 2 of it"):
        build(dict(SPECS["eagle"]))
