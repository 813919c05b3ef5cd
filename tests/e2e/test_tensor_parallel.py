"""A target split over two processes answers as in one, and its drafts are worth as much.

Every method, most of them by night.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.drafts import Drafts, watch
from tests.engines import Generate, MakeEngine, assert_same, token_ids
from tests.zoo import EVERY
from vllm_ascend_spec.platform.cpu import BIND

# Two processes and their libraries take a quarter of a minute to start.
BY_DAY = ("eagle3", "ngram")
METHODS = [
    pytest.param(name, marks=() if name in BY_DAY else pytest.mark.nightly) for name in EVERY
]
NUM_PROMPTS = 8
TOKENS = 32


@pytest.fixture(scope="module", autouse=True)
def unbound() -> Iterator[None]:
    """Leave it to our platform how workers share the cores of one NUMA node."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(BIND, "")  # so that it is put back afterwards
        patch.delenv(BIND)
        yield


@pytest.fixture(scope="module")
def in_one(expect: Any, prompts: list[str]) -> list[list[int]]:
    """The answers of one process without speculation."""
    return token_ids(expect(prompts[:NUM_PROMPTS], max_tokens=TOKENS))


def ask(llm: Any, generate: Generate, prompts: list[str]) -> tuple[list[list[int]], Drafts]:
    with watch(llm) as seen:
        outputs = generate(llm, prompts[:NUM_PROMPTS], max_tokens=TOKENS)
    return token_ids(outputs), seen


@pytest.mark.parametrize("method", METHODS)
def test_two_processes_answer_as_one(
    method: str,
    make_engine: MakeEngine,
    generate: Generate,
    prompts: list[str],
    in_one: list[list[int]],
) -> None:
    _, alone = ask(make_engine(EVERY[method]), generate, prompts)
    answers, split = ask(make_engine(EVERY[method], tensor_parallel_size=2), generate, prompts)
    assert_same(answers, in_one)
    # Sums are added in another order, so a draft may be another one where two are as likely.
    assert split.acceptance.num_drafts > 0
    assert split.acceptance.rate == pytest.approx(alone.acceptance.rate, rel=0.05)
