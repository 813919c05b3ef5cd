"""A draft model whose attention is of another kind than its target's: two groups of blocks.

The mend: ``vllm_ascend_spec/compat/draft_model_block_table.py``.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.config.checkpoints import edit_config
from tests.e2e.drafts import check_drafts, watch
from tests.engines import assert_same, token_ids
from tests.zoo import EVERY
from vllm_ascend_spec.compat.draft_model_block_table import TableOverride

WINDOW = 64


@pytest.fixture(params=["draft_model", "pard"])
def spec(request: Any, tmp_path: Path) -> dict[str, Any]:
    """A draft whose layers see the last tokens only."""
    spec = EVERY[request.param]
    folder = shutil.copytree(spec["model"], tmp_path / "draft")
    layers = 1 if request.param == "draft_model" else 2
    edit_config(folder, sliding_window=WINDOW, layer_types=["sliding_attention"] * layers)
    return {**spec, "model": str(folder)}


def test_drafts_are_written_into_their_own_blocks(
    spec: dict[str, Any], make_engine: Any, generate: Any, prompts: list[str], expect: Any
) -> None:
    expected = token_ids(expect(prompts[:8]))
    llm = make_engine(spec)
    with watch(llm) as seen:
        assert_same(token_ids(generate(llm, prompts[:8])), expected)
    check_drafts(seen, spec["num_speculative_tokens"], 1.2)


def test_without_the_mend_answers_are_wrong(
    spec: dict[str, Any],
    make_engine: Any,
    generate: Any,
    prompts: list[str],
    expect: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Negative control."""
    monkeypatch.setattr(TableOverride, "metadata_of_first_pass", lambda self, metadata: metadata)
    llm = make_engine(spec)
    assert token_ids(generate(llm, prompts[:8])) != token_ids(expect(prompts[:8]))
