"""A target split over two processes answers as in one, and its drafts are worth as much.

Both draw the same numbers. Every method, most of them by night.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from vllm import SamplingParams

from tests.e2e import sampled
from tests.e2e.drafts import Drafts, watch
from tests.e2e.ranks import differences, noting, skip_a_number
from tests.engines import Generate, MakeEngine, assert_same, token_ids
from tests.zoo import EVERY, drafting
from vllm_ascend_spec.methods.registry import BUILT_IN
from vllm_ascend_spec.platform.cpu import BIND

pytestmark = pytest.mark.usefixtures("copied_workers")
# Each starts two processes. Ranks that look n-grams up draw the same below.
BY_DAY = ("eagle3", "ngram")
METHODS = [
    pytest.param(name, marks=() if name == "eagle3" else pytest.mark.nightly) for name in EVERY
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


@pytest.fixture(scope="module")
def drawn_in_one(plain: Any, prompts: list[str]) -> list[list[int]]:
    """Those to requests with seeds."""
    return sampled.ask(plain, prompts[:NUM_PROMPTS], max_tokens=TOKENS)


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
    drawn_in_one: list[list[int]],
) -> None:
    _, alone = ask(make_engine(EVERY[method]), generate, prompts)
    in_two = make_engine(EVERY[method], tensor_parallel_size=2)
    answers, split = ask(in_two, generate, prompts)
    assert_same(answers, in_one)
    drawn = sampled.ask(in_two, prompts[:NUM_PROMPTS], max_tokens=TOKENS)
    assert_same(drawn, drawn_in_one)
    # Sums are added in another order, so a draft may be another one where two are as likely.
    assert split.acceptance.num_drafts > 0
    assert split.acceptance.rate == pytest.approx(alone.acceptance.rate, rel=0.05)


def sampling(request: int) -> SamplingParams:
    """Return another way to sample for each request of a batch, every second with a seed."""
    ways: list[dict[str, Any]] = [
        {"temperature": 0.8},
        {"temperature": 1.2, "top_p": 0.9, "top_k": 50},
        {"temperature": 0.0},
        {"temperature": 0.7, "min_p": 0.05, "repetition_penalty": 1.2},
    ]
    seed = None if request % 2 else request
    # Of other lengths, so that batches become smaller. The last one has no seed.
    own = {"seed": seed, "max_tokens": TOKENS + 3 * request, "ignore_eos": True}
    return SamplingParams(**ways[request // 2 % len(ways)], **own)


def sample(llm: Any, prompts: list[str]) -> list[list[int]]:
    parameters = [sampling(request) for request in range(NUM_PROMPTS)]
    outputs = llm.generate(prompts[:NUM_PROMPTS], parameters, use_tqdm=False)
    return [list(output.outputs[0].token_ids) for output in outputs]


WAYS = [
    pytest.param(
        method,
        how,
        2,
        marks=() if method in BY_DAY and how != "greedy" else pytest.mark.nightly,
    )
    for method in EVERY
    for how in ("auto", "greedy")
    if how == "auto" or BUILT_IN[EVERY[method]["method"]].can_sample_drafts
]
# Of more than two, each rounds the sum of a layer's parts in its own way: vLLM's on a CPU begins
# with its own part.
OF_FOUR = [
    pytest.param(method, "auto", 4, marks=pytest.mark.nightly)
    for method in ("eagle", "eagle3", "draft_model", "dflash", "dspark", "medusa", "mlp_speculator")
]


@pytest.mark.parametrize(("method", "how", "size"), [*WAYS, *OF_FOUR])
def test_all_processes_draw_the_same(
    method: str, how: str, size: int, make_engine: MakeEngine, prompts: list[str]
) -> None:
    """Every process has the same tokens, drafts, distributions and generators after each step."""
    spec = EVERY[method] if how == "auto" else drafting(method, how)
    llm = make_engine(spec, tensor_parallel_size=size)
    with noting(llm) as steps:
        answers = sample(llm, prompts)
    assert len(steps) == size
    assert not differences(steps)
    # Requests without a seed were drawn, and drafts verified, or the comparison shows nothing.
    assert sample(llm, prompts)[1] != answers[1]
    assert any(step["verified"] for step in steps[0])
    assert len({step["generator"] for step in steps[0]}) == len(steps[0])


def test_a_process_that_draws_other_numbers_would_be_noticed(
    make_engine: MakeEngine, prompts: list[str]
) -> None:
    """Negative control."""
    llm = make_engine(EVERY["ngram"], tensor_parallel_size=2)
    llm.collective_rpc(skip_a_number)
    with noting(llm) as steps:
        sample(llm, prompts)
    found = differences(steps)
    assert any("tokens" in text for text in found), found
    # The engine is not used again.
