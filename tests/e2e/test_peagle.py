"""P-EAGLE: an EAGLE-3 head that drafts in one pass. What it shares is tested with the others."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from tests.config.checkpoints import WEIGHTS
from tests.e2e.drafts import watch
from tests.engines import assert_same, token_ids
from tests.zoo import EVERY

SPEC = EVERY["peagle"]


@pytest.mark.parametrize("drafts", ["greedy", "probabilistic"])
@pytest.mark.parametrize("loop", ["ours", "stock"])
def test_answers_are_those_without_speculation(
    loop: str, drafts: str, make_engine: Any, generate: Any, prompts: Any, expect: Any
) -> None:
    options = {"ascend_spec": {"draft_loop": loop}}
    llm = make_engine({**SPEC, "draft_sample_method": drafts}, additional_config=options)
    with watch(llm) as seen:
        assert_same(token_ids(generate(llm, prompts[:8])), token_ids(expect(prompts[:8])))
    assert all(seen.acceptance.accepted_per_position)


def test_first_drafts_are_those_of_the_loop(make_engine: Any, generate: Any, prompts: Any) -> None:
    """With one draft a step there is no mask, so as many of them are accepted."""
    accepted = []
    for in_one_pass in (True, False):
        spec = {**SPEC, "num_speculative_tokens": 1, "parallel_drafting": in_one_pass}
        llm = make_engine(spec)
        with watch(llm) as seen:
            generate(llm, prompts[:8])
        accepted.append(seen.acceptance)
    assert accepted[0] == accepted[1]


def test_a_head_without_masked_states_is_refused(make_engine: Any, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(SPEC["model"], tmp_path / "head"))
    weights = load_file(folder / WEIGHTS)
    del weights["mask_hidden"]
    save_file(weights, folder / WEIGHTS, {"format": "pt"})
    with pytest.raises(Exception, match="has no tensor mask_hidden"):
        make_engine({**SPEC, "model": str(folder)})
