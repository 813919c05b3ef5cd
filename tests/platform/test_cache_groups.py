"""Drafts whose layers see windows of several sizes; engines: ``tests/e2e/test_cache_groups.py``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.platform.cache_groups import FLAG, set_one_group

MIXED = ["sliding_attention", "full_attention"]


def engine(layers: list[str] | None, given: bool | None = None, **changes: Any) -> Any:
    """Return vLLM's configuration of an engine with a draft of these layers."""
    values = {"method": "draft_model", "window": 64, "count": 2, **changes}
    draft = SimpleNamespace(
        layer_types=layers, sliding_window=values["window"], num_hidden_layers=values["count"]
    )
    return SimpleNamespace(
        speculative_config=SimpleNamespace(
            method=values["method"], draft_model_config=SimpleNamespace(hf_text_config=draft)
        ),
        scheduler_config=SimpleNamespace(disable_hybrid_kv_cache_manager=given),
    )


@pytest.mark.parametrize("method", ["draft_model", "eagle", "eagle3"])
def test_several_kinds_have_one_group_and_it_is_said(method: str) -> None:
    config = engine(MIXED, method=method)
    warning = set_one_group(config)
    assert config.scheduler_config.disable_hybrid_kv_cache_manager is True
    assert warning is not None
    assert warning.startswith(f"{FLAG} is set: the draft has layers of full_attention and sliding")


@pytest.mark.parametrize(
    "config",
    [
        engine(None),
        engine(["sliding_attention"] * 2),
        engine(["full_attention"] * 2),
        engine(MIXED, window=None),
        engine(MIXED, count=1),
        engine(MIXED, method="mtp"),  # its config is the target's
        engine(MIXED, given=True),
    ],
)
def test_others_are_left_as_they_are(config: Any) -> None:
    before = config.scheduler_config.disable_hybrid_kv_cache_manager
    assert set_one_group(config) is None
    assert config.scheduler_config.disable_hybrid_kv_cache_manager is before


def test_several_groups_that_were_asked_for_are_refused() -> None:
    with pytest.raises(ConfigError, match="leave it out") as raised:
        set_one_group(engine(MIXED, given=False))
    assert raised.value.option == "--no-disable-hybrid-kv-cache-manager"
