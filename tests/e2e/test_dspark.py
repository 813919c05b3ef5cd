"""A DSpark head's drafts are those of a plain computation, in both layouts of a block."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.dspark_reference import Reference
from tests.engines import assert_same, token_ids
from tests.marks import unless
from tests.zoo import SPECS, TARGET
from vllm_ascend_spec.upstream import limits

pytestmark = unless(limits.WITHOUT_METHODS.get(("dspark", "vllm")))

K = 4


def with_layout(folder: Path, *, first_yields: bool) -> dict[str, Any]:
    """Return a spec of the head in one of the two layouts; it is trained for one of them."""
    shutil.copytree(SPECS["dspark"]["model"], folder)
    config = json.loads((folder / "config.json").read_text())
    config["sample_from_anchor"] = first_yields
    (folder / "config.json").write_text(json.dumps(config))
    return {**SPECS["dspark"], "model": str(folder), "num_speculative_tokens": K}


def noted(llm: Any) -> list[tuple[int, list[list[int]]]]:
    """Return a list of how long the first request's text was at each step, and its drafts."""
    drafter = llm.llm_engine.model_executor.driver_worker.worker.model_runner.drafter
    pick_all, seen = drafter.pick_all, []

    def pick(hidden: Any, sampler: Any) -> Any:
        drafts = pick_all(hidden, sampler)
        seen.append((int(drafter.positions[0]) + 1, drafts.tolist()))
        return drafts

    drafter.pick_all = pick
    return seen


@pytest.mark.parametrize("first_yields", [True, False], ids=["from the token", "from masks"])
def test_drafts_are_those_of_a_plain_computation(
    first_yields: bool,
    make_engine: Any,
    generate: Any,
    expect: Any,
    prompts: list[str],
    tmp_path: Path,
) -> None:
    spec = with_layout(tmp_path / "dspark", first_yields=first_yields)
    # The shortest blocks of the cache that a CPU has: some rows begin in one and end in the next.
    llm = make_engine(spec, block_size=32)
    seen = noted(llm)
    answers = generate(llm, prompts[:1], max_tokens=40)
    assert_same(token_ids(answers), token_ids(expect(prompts[:1], max_tokens=40)))
    text = [*llm.get_tokenizer()(prompts[0]).input_ids, *answers[0].token_ids]
    reference = Reference(TARGET, spec["model"])
    compared = [(length, drafts) for length, drafts in seen if length <= len(text)]
    assert len(compared) > 8
    for length, (drafts, *_) in compared:
        assert drafts == reference.drafts(text[:length], K), length
