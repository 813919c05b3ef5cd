"""Our port of the stock rules for capture sizes gives what their own code gives."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.upstream import stock_own
from vllm_ascend_spec.graphs import stock_rules
from vllm_ascend_spec.graphs.budget import Budget
from vllm_ascend_spec.graphs.planner import plan
from vllm_ascend_spec.graphs.stock_rules import CaptureInputs, graphs_of_tiers
from vllm_ascend_spec.graphs.tiers import tiers_of_drafts, tiers_of_schedule

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("vllm") is None, reason="vLLM is not installed"
)
requires_vllm_ascend = pytest.mark.skipif(
    importlib.util.find_spec("vllm_ascend") is None,
    reason="vllm-ascend is not installed; make test-npu-sim has a place where it is",
)
MANY = settings(max_examples=300, deadline=None)


@st.composite
def engines(draw: st.DrawFn) -> CaptureInputs:
    """Return an engine with one K, or with a schedule."""
    edges = st.sampled_from([1, 2, 3, 12, 20, 64, 128, 255, 256, 257, 511, 512, 1024])
    max_num_seqs = draw(st.one_of(edges, st.integers(1, 1500)))
    schedule = None
    if draw(st.booleans()):
        lasts = sorted(draw(st.sets(st.integers(1, 2000), min_size=1, max_size=4)))
        firsts = [1, *(last + 1 for last in lasts)]
        rows = [(a, b, draw(st.integers(0, 8))) for a, b in zip(firsts, lasts, strict=False)]
        tiers = tiers_of_schedule(max_num_seqs, rows)
        most = max(tier.k for tier in tiers)
        assume(most)
        schedule = tuple((a, b, min(k, most)) for a, b, k in rows)
    else:
        tiers = tiers_of_drafts(max_num_seqs, [draw(st.integers(0, 16))])
    ranks = draw(st.sampled_from([1, 2, 3, 4, 8, 16]))
    batched = draw(st.one_of(st.none(), st.integers(max_num_seqs, 16384)))
    return CaptureInputs(max_num_seqs, tiers, schedule, ranks, draw(st.booleans()), batched)


@MANY
@given(engines())
def test_vllm(engine: CaptureInputs) -> None:
    theirs, port = stock_own.vllm(engine), stock_rules.vllm(engine)
    assert theirs.sizes_by_k == port.sizes_by_k
    assert bool(theirs.problem) == bool(port.problem)


@requires_vllm_ascend
@MANY
@given(engines())
def test_vllm_ascend(engine: CaptureInputs) -> None:
    theirs, port = stock_own.vllm_ascend(engine), stock_rules.vllm_ascend(engine)
    assert theirs.sizes_by_k == port.sizes_by_k
    assert bool(theirs.problem) == bool(port.problem)


@MANY
@given(engines().filter(lambda engine: engine.query_len > 1 and len(engine.tiers) == 1))
def test_which_sizes_a_decode_batch_is_replayed_from(engine: CaptureInputs) -> None:
    """The dispatcher itself, with keys made of the sizes that the port starts from."""
    from vllm.config import CompilationConfig, CUDAGraphMode
    from vllm.v1.cudagraph_dispatcher import CudagraphDispatcher

    found = stock_rules.vllm(engine)
    assume(any(found.sizes_by_k.values()))
    compilation = CompilationConfig(cudagraph_mode=CUDAGraphMode.FULL_DECODE_ONLY)
    compilation.cudagraph_capture_sizes = stock_rules.adjusted(
        stock_rules.vllm_sizes(engine), engine
    )
    compilation.max_cudagraph_capture_size = compilation.cudagraph_capture_sizes[-1]
    config = SimpleNamespace(
        compilation_config=compilation,
        scheduler_config=SimpleNamespace(max_num_seqs=engine.max_num_seqs),
        num_speculative_tokens=engine.query_len - 1,
        lora_config=None,
    )
    dispatcher = CudagraphDispatcher(config)
    mode = CUDAGraphMode.FULL_DECODE_ONLY
    dispatcher.initialize_cudagraph_keys(mode, engine.query_len)
    keys = dispatcher.cudagraph_keys[CUDAGraphMode.FULL]
    sizes = found.sizes_by_k[engine.tiers[0].k]
    assert sorted(key.num_tokens for key in keys) == list(sizes)
    for requests in range(1, min(engine.max_num_seqs, 64) + 1):
        tokens = requests * engine.query_len
        chosen, key = dispatcher.dispatch(tokens, uniform_decode=True)
        larger = [size for size in sizes if size >= tokens]
        assert (chosen == CUDAGraphMode.FULL) == bool(larger)
        assert not larger or key.num_tokens == larger[0]


@MANY
@given(engines().filter(lambda engine: engine.schedule is not None and engine.query_len > 1))
def test_the_graphs_that_v2_makes_of_a_list(engine: CaptureInputs) -> None:
    from vllm.config import CUDAGraphMode
    from vllm.v1.worker.gpu.cudagraph_utils import CudaGraphManager

    sizes = stock_rules.vllm_sizes(engine)
    assume(sizes)
    manager = object.__new__(CudaGraphManager)
    manager.vllm_config = SimpleNamespace(
        num_speculative_tokens=engine.query_len - 1,
        cache_config=SimpleNamespace(use_kda_recoverssm=False),
        speculative_config=SimpleNamespace(
            uses_dynamic_speculative_decoding=lambda: True,
            num_speculative_tokens_per_batch_size=[list(row) for row in engine.schedule or ()],
        ),
    )
    manager.compilation_config = SimpleNamespace(
        cudagraph_capture_sizes=sizes, max_cudagraph_capture_size=sizes[-1]
    )
    manager.max_num_reqs, manager.decode_query_len = engine.max_num_seqs, engine.query_len
    manager.cudagraph_mode = CUDAGraphMode.FULL_DECODE_ONLY
    manager.varlen_decode, manager.ubatch_runner = False, None
    manager.lora_capture_cases = [0]
    manager._candidates, manager._capture_descs = {}, {}
    manager._init_candidates()
    theirs: dict[int, set[int]] = {tier.k: set() for tier in engine.tiers}
    for desc in manager._capture_descs.get(CUDAGraphMode.FULL, []):
        theirs[desc.uniform_token_count - 1].add(desc.num_tokens)
    assert theirs == {k: set(row) for k, row in graphs_of_tiers(sizes, engine).items()}


def test_a_port_that_differs_is_seen() -> None:
    engine = CaptureInputs(256, tiers_of_drafts(256, [2]))
    assert stock_own.vllm(engine).sizes_by_k != stock_rules.vllm_ascend(engine).sizes_by_k


@MANY
@given(st.integers(1, 600), st.integers(1, 8), st.integers(1, 40))
def test_a_plan_given_as_sizes_is_captured_as_it_is(max_num_seqs: int, k: int, graphs: int) -> None:
    planned = plan(max_num_seqs, k, budget=Budget(graphs=graphs))
    engine = CaptureInputs(max_num_seqs, tiers_of_drafts(max_num_seqs, [k]))
    config = stock_own.config_of(engine)
    config.compilation_config.cudagraph_capture_sizes = list(planned.sizes)
    sizes = stock_own.set_sizes(config)
    assert stock_own.adjusted(sizes, engine) == list(planned.sizes)
    assert stock_own.ascend_adjusted(sizes, engine) == list(planned.sizes)
