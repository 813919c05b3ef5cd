"""P-EAGLE: an EAGLE-3 head that drafts in one pass.

The zoo has none; its EAGLE-3 head stands in, with masks that it was not trained for. Of its drafts
the first are those of the loop, and the later ones are bad.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.config.checkpoints import WEIGHTS, edit_config
from tests.e2e.drafts import watch
from tests.engines import assert_same, token_ids
from tests.zoo import SPECS

MASK = 188
LOOP = SPECS["eagle3"]


@pytest.fixture(scope="module")
def spec(tmp_path_factory: Any) -> dict[str, Any]:
    """A head with a token for masks, and with what stands for their states."""
    folder = Path(shutil.copytree(LOOP["model"], tmp_path_factory.mktemp("peagle") / "head"))
    edit_config(folder, pard_token=MASK)
    weights = load_file(folder / WEIGHTS)
    torch.manual_seed(0)
    weights["mask_hidden"] = torch.randn(1, weights["fc.weight"].shape[1]).bfloat16()
    save_file(weights, folder / WEIGHTS, {"format": "pt"})
    return {**LOOP, "model": str(folder), "parallel_drafting": True}


@pytest.mark.parametrize("drafts", ["greedy", "probabilistic"])
@pytest.mark.parametrize("loop", ["ours", "stock"])
def test_answers_are_those_without_speculation(
    loop: str, drafts: str, spec: Any, make_engine: Any, generate: Any, prompts: Any, expect: Any
) -> None:
    options = {"ascend_spec": {"draft_loop": loop}}
    llm = make_engine({**spec, "draft_sample_method": drafts}, additional_config=options)
    with watch(llm) as seen:
        assert_same(token_ids(generate(llm, prompts[:8])), token_ids(expect(prompts[:8])))
    assert seen.acceptance.accepted_per_position[0] > 0


def test_first_drafts_are_those_of_the_loop(
    spec: Any, make_engine: Any, generate: Any, prompts: Any
) -> None:
    """With one draft a step there is no mask, so as many of them are accepted."""
    accepted = []
    for one in (spec, LOOP):
        llm = make_engine({**one, "num_speculative_tokens": 1})
        with watch(llm) as seen:
            generate(llm, prompts[:8])
        accepted.append(seen.acceptance)
    assert accepted[0] == accepted[1]


def test_a_head_without_masked_states_is_refused(make_engine: Any, tmp_path: Path) -> None:
    folder = shutil.copytree(LOOP["model"], tmp_path / "head")
    edit_config(folder, pard_token=MASK)
    with pytest.raises(Exception, match="has no tensor mask_hidden"):
        make_engine({**LOOP, "model": str(folder), "parallel_drafting": True})
