"""What is known of a target before its weights are loaded, and which arguments its engine gets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import vllm

from tests.zoo import CONFIG, DEPTH, TARGET, WIDTH
from vllm_ascend_spec.errors import AscendSpecError, ConfigError
from vllm_ascend_spec.training.engine import read_model, start_engine
from vllm_ascend_spec.training.settings import Settings
from vllm_ascend_spec.training.target import target_hash


def settings(**changes: Any) -> Settings:
    return Settings(
        model=Path(TARGET), method="eagle3", prompts=(), output=Path("out"), max_model_len=128,
        **changes,
    )  # fmt: skip


@pytest.mark.parametrize(("dtype", "expected"), [("auto", CONFIG["dtype"]), ("float32", "float32")])
def test_a_model_is_as_its_engine_would_have_it(dtype: str, expected: str) -> None:
    found = read_model(settings(dtype=dtype))
    assert (found.hash, found.dtype) == (target_hash(Path(TARGET)), expected)
    assert (found.num_layers, found.hidden_size) == (DEPTH, WIDTH)
    assert found.vocab_size == CONFIG["vocab_size"]
    assert found.tokenizer("def f(")["input_ids"]


def test_options_of_the_engine_count(monkeypatch: pytest.MonkeyPatch) -> None:
    found = read_model(settings(engine={"hf_overrides": {"num_hidden_layers": 1}}))
    assert found.num_layers == 1
    given: list[dict[str, Any]] = []
    monkeypatch.setattr(vllm, "LLM", lambda **arguments: given.append(arguments))
    usual, own = {"seed": 1, "block_size": 16}, {"enable_prefix_caching": False}
    engine = {"block_size": 32, "enable_prefix_caching": True}
    start_engine(settings(engine=engine), usual, own)
    assert given == [
        {
            "use_tqdm_on_load": False,
            "model": TARGET,
            "dtype": "auto",
            "max_model_len": 128,
            "seed": 1,
            "block_size": 32,
            "enable_prefix_caching": False,
        }
    ]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("No memory.\n  Valid: less."), "does not start: No memory. Valid: less."),
        (ConfigError("--dtype", "x", "valid: others"), "--dtype='x': valid: others"),
    ],
)
def test_what_an_engine_refuses_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, error: Exception, told: str
) -> None:
    def refuse(**_: Any) -> None:
        raise error

    monkeypatch.setattr(vllm, "LLM", refuse)
    with pytest.raises(AscendSpecError) as raised:
        start_engine(settings(), {}, {})
    assert str(raised.value).endswith(told)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"max_model_len": 100_000}, "max_model_len"),
        ({"engine": {"quantization": "nonsense"}}, "nonsense"),
        ({"engine": {"tensor_parallel_size": 3}}, "3"),
        ({"engine": {"tokenizer": "/nowhere"}}, "/nowhere"),
    ],
)
def test_what_does_not_fit_the_model_is_told_in_one_line(
    changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(AscendSpecError) as raised:
        read_model(replace(settings(), **changes))
    found = str(raised.value)
    assert found.startswith("the target's engine does not start: ")
    assert told in found
    assert "\n" not in found
    assert "https://errors.pydantic.dev" not in found


def test_our_section_is_not_for_the_engines_of_the_phases() -> None:
    """They would refuse it: without speculation it has no effect."""
    section = {"draft_length": "fixed", "draft_window": 64}
    assert read_model(settings(engine={"additional_config": {"ascend_spec": section}})).hash
