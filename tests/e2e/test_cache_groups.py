"""A draft whose attention is of another kind than its target's, or of several.

Of another kind: two groups of blocks, ``vllm_ascend_spec/patches/draft_model_block_table.py``. Of
several: one group, ``vllm_ascend_spec/platform/cache_groups.py``. Listed in an EAGLE head's config:
``vllm_ascend_spec/patches/eagle_layer_types.py``.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.config.checkpoints import edit_config
from tests.e2e.drafts import check_drafts, watch
from tests.engines import assert_same, token_ids
from tests.zoo import EVERY, TARGET
from vllm_ascend_spec.cli.main import main
from vllm_ascend_spec.patches.draft_model_block_table import TableOverride
from vllm_ascend_spec.platform.cache_groups import FLAG

WINDOW = 64


@pytest.fixture(params=["draft_model", "pard"])
def spec(request: Any, tmp_path: Path) -> dict[str, Any]:
    """A draft whose layers see the last tokens only."""
    spec = EVERY[request.param]
    folder = shutil.copytree(spec["model"], tmp_path / "draft")
    layers = 1 if request.param == "draft_model" else 2
    edit_config(folder, sliding_window=WINDOW, layer_types=["sliding_attention"] * layers)
    return {**spec, "model": str(folder)}


@pytest.mark.core
def test_drafts_are_written_into_their_own_blocks(
    spec: dict[str, Any], make_engine: Any, generate: Any, prompts: list[str], expect: Any
) -> None:
    expected = token_ids(expect(prompts[:8]))
    llm = make_engine(spec)
    with watch(llm) as seen:
        assert_same(token_ids(generate(llm, prompts[:8])), expected)
    check_drafts(seen, spec["num_speculative_tokens"], 1.2)


def test_without_the_patch_answers_are_wrong(
    spec: dict[str, Any],
    make_engine: Any,
    generate: Any,
    prompts: list[str],
    expect: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Negative control."""
    monkeypatch.setattr(TableOverride, "metadata_of_first_step", lambda self, metadata: metadata)
    llm = make_engine(spec)
    assert token_ids(generate(llm, prompts[:8])) != token_ids(expect(prompts[:8]))


def test_a_draft_with_windowed_and_full_layers(
    make_engine: Any,
    generate: Any,
    prompts: list[str],
    expect: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As Gemma's; check and the engine say what is changed for it."""
    spec = EVERY["pard"]
    folder = shutil.copytree(spec["model"], tmp_path / "draft")
    layers = ["sliding_attention", "full_attention"]
    edit_config(folder, sliding_window=WINDOW, layer_types=layers)
    spec = {**spec, "model": str(folder)}
    assert main(["check", TARGET, "--speculative-config", json.dumps(spec)]) == 0
    assert f"{FLAG} is set: the draft has layers of" in capsys.readouterr().out
    llm = make_engine(spec)
    with watch(llm) as seen:
        assert_same(token_ids(generate(llm, prompts[:8])), token_ids(expect(prompts[:8])))
    check_drafts(seen, spec["num_speculative_tokens"], 1.2)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("full_attention", marks=pytest.mark.core),
        # The same way through a head's config.
        pytest.param("sliding_attention", marks=pytest.mark.nightly),
    ],
)
def test_an_eagle_head_that_lists_its_layers(
    kind: str, make_engine: Any, generate: Any, prompts: list[str], expect: Any, tmp_path: Path
) -> None:
    spec = EVERY["eagle"]
    folder = shutil.copytree(spec["model"], tmp_path / "head")
    edit_config(folder, sliding_window=WINDOW, layer_types=[kind])
    llm = make_engine({**spec, "model": str(folder)})
    with watch(llm) as seen:
        assert_same(token_ids(generate(llm, prompts[:8])), token_ids(expect(prompts[:8])))
    check_drafts(seen, spec["num_speculative_tokens"], 2.0)
