"""Positions of a Qwen3.5's MTP layer, where the target reads no images."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from vllm.model_executor.models.config import Qwen3_5ForCausalLMConfig

from tests.patches.cases import TakeOut
from vllm_ascend_spec.patches import qwen35_text_draft as patch


def configured(method: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the rotary parameters of target and draft when vLLM has looked at them."""

    def model() -> Any:
        parameters = {"rope_type": "default", "mrope_section": [3, 3, 2], "mrope_interleaved": True}
        return SimpleNamespace(hf_text_config=SimpleNamespace(rope_parameters=parameters))

    target, draft = model(), model()
    spec = SimpleNamespace(draft_model_config=draft, method=method)
    config: Any = SimpleNamespace(
        model_config=target,
        speculative_config=None if method is None else spec,
        cache_config=SimpleNamespace(mamba_ssm_cache_dtype="auto"),
    )
    Qwen3_5ForCausalLMConfig.verify_and_update_config(config)
    return tuple(m.hf_text_config.rope_parameters for m in (target, draft))


def test_stock_fault_and_patch(take_out: TakeOut) -> None:
    take_out(patch)
    target, draft = configured("mtp")
    assert target == {"rope_type": "default"}
    assert "mrope_section" in draft
    patch.apply()
    target, draft = configured("mtp")
    assert target == draft == {"rope_type": "default"}


@pytest.mark.parametrize("method", [None, "draft_model"])
def test_other_drafts_keep_theirs(method: str | None, take_out: TakeOut) -> None:
    """A draft model is another model, which may read images."""
    take_out(patch)
    patch.apply()
    target, draft = configured(method)
    assert "mrope_section" not in target
    assert "mrope_section" in draft
