"""A GPU's way to have trees, in engines on a CPU (``triton_attention.py``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.scripted_trees import PARENTS, TreeScript
from tests.e2e.test_trees import BLOCK, accepted, ask, spec_of
from tests.e2e.triton_attention import kernels_in_pytorch, triton_attention
from tests.engines import assert_same, token_ids
from vllm_ascend_spec.methods.ngram import drafter as ngram

__all__ = ["accepted"]


@pytest.fixture(scope="module", autouse=True)
def on_triton() -> Iterator[None]:
    with kernels_in_pytorch():
        yield


@pytest.fixture
def scripted(
    make_engine: Any, expect: Any, prompts: list[str], monkeypatch: pytest.MonkeyPatch
) -> tuple[Any, list[list[int]], TreeScript]:
    tokenizer = make_engine().get_tokenizer()
    answers = token_ids(expect(prompts[:16]))
    texts = [tokenizer.encode(p) + a for p, a in zip(prompts, answers, strict=False)]
    script = TreeScript(texts)
    monkeypatch.setattr(ngram.NgramDrafter, "find_trees", script.method())
    options = {"ascend_spec": {"tree": len(PARENTS)}}
    with triton_attention():
        llm = make_engine(spec_of("ngram"), additional_config=options, block_size=BLOCK)
    return llm, answers, script


@pytest.mark.parametrize("batch", [1, 8])
def test_every_node_ends_the_accepted_path(
    batch: int, scripted: Any, generate: Any, prompts: list[str], accepted: list[list[int]]
) -> None:
    llm, answers, script = scripted
    assert_same(ask(llm, generate, prompts[:16], batch), answers)
    assert script.ended_at == set(range(len(PARENTS)))
    assert {rows[-1] for rows in accepted} == set(range(len(PARENTS) + 1))
