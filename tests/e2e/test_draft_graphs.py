"""The draft loop in graphs: what is captured at start is what is replayed, on the same memory.

How far it reaches: the loop, vLLM's dispatcher of graphs, its ``dummy_run`` and its planning of
widths are the very code that a GPU runs; the zoo's models, attention and KV cache are a CPU's, and
a fake (graphs.py) keeps the rules of CUDA's graphs. What it cannot show is what a GPU's
attention and compiler do inside a graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.e2e.graphs import GraphedModel, graphs_of
from tests.engines import assert_same, token_ids
from tests.zoo import SPECS, WITH_A_LOOP
from vllm_ascend_spec.methods.loops.vllm.module_steps import ModuleSteps
from vllm_ascend_spec.upstream.ranges import vllm_is

pytestmark = pytest.mark.skipif(
    vllm_is("<0.30"), reason="drafts in graphs of a GPU, for which vLLM 0.23 is not supported"
)

SIZES = [1, 2, 4, 8, 16, 32]
# Prompts of about a hundred tokens are too wide for a graph; requests of one, three and eight at a
# time fill a size of draft steps 2..K exactly, or leave rows over.
BATCHES = (1, 3, 8)


@pytest.fixture(scope="module")
def some(prompts: list[str]) -> list[str]:
    return prompts[:8]


def drafter_of(llm: Any) -> Any:
    return llm.llm_engine.model_executor.driver_worker.worker.model_runner.drafter


@pytest.fixture
def graphed(request: pytest.FixtureRequest, make_engine: Any) -> Iterator[tuple[Any, GraphedModel]]:
    """Yield an engine of the method that the test is parametrized by, with its draft in graphs."""
    llm = make_engine(SPECS[request.param])
    with graphs_of(drafter_of(llm), SIZES) as model:
        yield llm, model


@pytest.mark.parametrize("graphed", WITH_A_LOOP, indirect=True)
@pytest.mark.parametrize("batch", BATCHES)
def test_replays_are_of_captured_widths_and_buffers(
    batch: int, graphed: tuple[Any, GraphedModel], expect: Any, generate: Any, some: list[str]
) -> None:
    llm, model = graphed
    expected = token_ids(expect(some))
    assert sorted(key.num_tokens for key in model.captured) == SIZES
    captured = set(model.captured)
    assert_same(token_ids(generate(llm, some, batch)), expected)
    assert set(model.captured) == captured
    assert not model.strangers
    # The first pass after a verification has K+1 rows a request, a draft model's one more; the
    # later ones have one.
    drafter = drafter_of(llm)
    first = batch * (drafter.num_speculative_tokens + 1 + drafter.net_num_new_slots_per_request)
    widths = {key.num_tokens for key in model.replayed}
    assert {padded(width) for width in (batch, first) if width <= max(SIZES)} <= widths
    assert min(model.eager_widths) > max(SIZES)


def padded(width: int) -> int:
    """Return the size of the graph in which a pass of this width runs."""
    return min(size for size in SIZES if size >= width)


@pytest.mark.parametrize("graphed", WITH_A_LOOP, indirect=True)
def test_drafts_are_those_of_a_draft_without_graphs(
    graphed: tuple[Any, GraphedModel], generate: Any, some: list[str]
) -> None:
    """Wrong drafts would cost acceptance and leave the answers right."""
    llm, model = graphed
    drafter = drafter_of(llm)
    in_graphs = drafts_of(llm, drafter, generate, some)
    assert model.replayed
    drafter.cudagraph_dispatcher.keys_initialized = False  # no key fits: every pass is eager
    before = len(model.replayed)
    without = drafts_of(llm, drafter, generate, some)
    drafter.cudagraph_dispatcher.keys_initialized = True
    assert len(model.replayed) == before
    assert in_graphs == without


def drafts_of(llm: Any, drafter: Any, generate: Any, texts: list[str]) -> list[list[list[int]]]:
    """Return the drafts of each step."""
    propose, drafts = drafter.propose, []

    def noting(*args: Any, **kwargs: Any) -> torch.Tensor:
        made = propose(*args, **kwargs)
        drafts.append(made.tolist())
        return made

    drafter.propose = noting
    try:
        # From an empty cache, so that the prompts are computed in the same pieces.
        llm.reset_prefix_cache()
        generate(llm, texts, batch=3)
    finally:
        del drafter.propose
    return drafts


@pytest.mark.parametrize(
    "method",
    [
        name if name == "eagle" else pytest.param(name, marks=pytest.mark.nightly)
        for name in WITH_A_LOOP
    ],
)
@pytest.mark.parametrize("loop", ["ours", "stock"])
def test_later_passes_have_graphs_of_their_own(
    method: str, loop: str, make_engine: Any, expect: Any, generate: Any, some: list[str]
) -> None:
    """The target has K+1 rows for each request, draft steps 2 to K have one."""
    section = {"ascend_spec": {"draft_loop": loop}}
    llm = make_engine(SPECS[method], additional_config=section)
    drafter = drafter_of(llm)
    width = drafter.num_speculative_tokens + 1
    sizes = [requests * width for requests in (1, 2, 3, 8)]
    rows = {size: size // width for size in sizes}
    expected = token_ids(expect(some))
    for laid, later in ((rows, 3), ({}, width)):  # without them as vLLM does it
        with graphs_of(drafter, sizes, laid) as model:
            assert {key.num_tokens for key in model.captured} == {*sizes, *laid.values()}
            assert_same(token_ids(generate(llm, some, batch=3)), expected)
        assert not model.strangers
        assert later in {key.num_tokens for key in model.replayed}
        assert (3 in {key.num_tokens for key in model.replayed}) == bool(laid)


@pytest.mark.parametrize("graphed", ["eagle"], indirect=True)
def test_inputs_that_are_not_in_the_buffers_are_found(
    graphed: tuple[Any, GraphedModel], generate: Any, some: list[str], monkeypatch: Any
) -> None:
    """Negative control: a loop that hands its own tensors over, as without graphs."""
    from vllm.config import CUDAGraphMode

    llm, model = graphed
    stock = ModuleSteps._step_inputs

    def without_copies(self: Any, tokens: Any, positions: Any, hidden: Any, *_: Any) -> Any:
        return stock(self, tokens, positions, hidden, len(tokens), CUDAGraphMode.NONE)

    monkeypatch.setattr(ModuleSteps, "_step_inputs", without_copies)
    generate(llm, some, batch=8)
    assert model.strangers


@pytest.mark.parametrize("graphed", ["eagle"], indirect=True)
def test_results_kept_across_a_replay_are_found(
    graphed: tuple[Any, GraphedModel], generate: Any, some: list[str]
) -> None:
    """Negative control: the fake destroys what a graph returned before the next replay."""
    llm, model = graphed
    generate(llm, some[:1], batch=1)
    key = model.replayed[-1]
    kept = model.captured[key].outputs[0]
    other = next(graph for graph in model.captured.values() if graph.outputs[0] is not kept)
    assert kept.isfinite().all()
    assert other.outputs[0].isnan().all()
