"""Where vllm-ascend's own draft loop is used, and why ours is not.

docs/recipes/families.md has the same list. What nothing here can run is shown on vllm-ascend's own
code: what it prepares for draft steps 2 to K, and what becomes of that on one row per request.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.ascend.test_refusals import DECODE, PIECEWISE, make_proposer
from tests.marks import unless
from tests.methods.engine import drafter_of
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.upstream.limits import NO_LOOP_ON_NPU

pytestmark = unless(NO_LOOP_ON_NPU)
K, REQUESTS = 3, 2
ROWS = REQUESTS * (K + 1)


def drafter_in(mode: str, monkeypatch: pytest.MonkeyPatch, **given: Any) -> Any:
    """Return a drafter of MTP layers as far as the choice of a loop looks at it.

    Args:
        mode: of the target's graphs.
        monkeypatch: for vllm-ascend's configuration.
        given: attributes that differ; ``split`` has options of ``finegrained_tp_config``.
    """
    from vllm_ascend.ascend_config import FinegrainedTPConfig

    from vllm_ascend_spec.methods.loops.ascend import loop

    split = FinegrainedTPConfig(**given.pop("split", {}))
    config = SimpleNamespace(finegrained_tp_config=split)
    monkeypatch.setattr(loop, "get_ascend_config", lambda: config)
    drafter: Any = object.__new__(drafter_of("mtp", "ascend"))
    vars(drafter).update(
        vars(make_proposer(mode, method="mtp")),
        dcp_size=1,
        use_compress=False,
        use_sparse=False,
        _share_mtp_indices=False,
        runner=SimpleNamespace(sparse_kv_offload_enabled=given.pop("offloads", False)),
        draft_model_config=SimpleNamespace(use_mla=True),
        vllm_config=SimpleNamespace(parallel_config=SimpleNamespace(data_parallel_size=1)),
    )
    vars(drafter).update(given)
    return drafter


PROBLEMS = {
    "decode context parallelism": {"dcp_size": 2},
    "oproj_tensor_parallel_size": {"split": {"oproj_tensor_parallel_size": 2}},
    "mlp_tensor_parallel_size": {"split": {"mlp_tensor_parallel_size": 2}},
    "compressed attention": {"use_compress": True},
    "KV cache offload of sparse attention": {"use_sparse": True, "offloads": True},
}


@pytest.mark.parametrize("problem", PROBLEMS)
def test_our_loop_is_refused_where_vllm_ascends_is_used(
    problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafter = drafter_in(PIECEWISE, monkeypatch, **PROBLEMS[problem])
    assert not drafter.chooses_own_loop("auto")
    with pytest.raises(ConfigError, match=f"not possible with {problem}; valid here"):
        drafter.chooses_own_loop("ours")


def test_these_are_all(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drafter_in(PIECEWISE, monkeypatch).loop_problems().keys() == PROBLEMS.keys()


@pytest.mark.parametrize("mode", [PIECEWISE, DECODE])
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"use_sparse": True},
        {"use_sparse": True, "_share_mtp_indices": True},
        {"split": {"lmhead_tensor_parallel_size": 2, "embedding_tensor_parallel_size": 2}},
    ],
)
def test_our_loop_is_used_otherwise(
    mode: str, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert drafter_in(mode, monkeypatch, **given).chooses_own_loop("ours")


# Decode context parallelism: ranks have parts of a context.


def dummy_metadata() -> Any:
    """Return metadata of step 1 at capture: rows of :data:`REQUESTS` with K drafts each."""
    lengths = torch.full((REQUESTS,), 9, dtype=torch.int32)
    return SimpleNamespace(
        num_reqs=REQUESTS,
        num_actual_tokens=ROWS,
        num_input_tokens=ROWS,
        block_table_tensor=torch.zeros(ROWS, 4, dtype=torch.int32),
        seq_lens_cpu=lengths,
        _seq_lens_cpu=lengths,
        seq_lens_cpu_upper_bound=lengths,
        num_computed_tokens_cpu=lengths - 1,
        token_to_req=None,
    )


def test_ranks_with_parts_of_a_context_prepare_a_row_for_each_of_step_1(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At capture, vllm-ascend's preparation of a later step is replaced by ours.

    Its own pads the lengths on the host, of which ranks compute their parts, to as many rows as
    step 1 has. On ours they stay those of the requests.
    """
    from vllm_ascend.spec_decode.llm_base_proposer import AscendSpecDecodeBaseProposer as Stock

    buffers = {
        "query_start_loc_group": [torch.zeros(ROWS + 1, dtype=torch.int32) for _ in range(K)],
        "seq_lens_group": [torch.zeros(ROWS, dtype=torch.int32) for _ in range(K)],
    }
    drafter = drafter_in(
        DECODE,
        monkeypatch,
        dcp_size=2,
        parallel_drafting=False,
        arange=torch.arange(ROWS + 1, dtype=torch.int32),
        uses_own_loop=True,
        draft_model_config=SimpleNamespace(use_mla=False),
        **buffers,
    )
    drafter.runner.uniform_decode_query_len = K + 1
    stock, ours = dummy_metadata(), dummy_metadata()
    Stock._prepare_dcp_draft_dummy_metadata(drafter, stock, 1)
    drafter._prepare_dcp_draft_dummy_metadata(ours, 1)
    assert (stock.num_reqs, len(stock.seq_lens_cpu)) == (ROWS, ROWS)
    assert (ours.num_reqs, len(ours.seq_lens_cpu)) == (REQUESTS, REQUESTS)


# Layers that data-parallel replicas share.


@pytest.mark.parametrize("layer", ["oproj_tensor_parallel_size", "mlp_tensor_parallel_size"])
def test_shared_layers_want_an_engine_that_nothing_here_runs(layer: str) -> None:
    """Only the half of a pair that receives the KV cache of prompts has them."""
    from vllm.config import CUDAGraphMode
    from vllm_ascend.ascend_config import FinegrainedTPConfig

    alone = SimpleNamespace(
        parallel_config=SimpleNamespace(tensor_parallel_size=1),
        compilation_config=SimpleNamespace(cudagraph_mode=CUDAGraphMode.FULL_DECODE_ONLY),
        kv_transfer_config=None,
    )
    with pytest.raises(AssertionError, match="only supported in pd scenario"):
        FinegrainedTPConfig(**{layer: 2})._validate_preconditions(alone)


# Compressed attention, DeepSeek V4's.


def test_compressed_attention_computes_once_for_all_passes_of_a_context(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """vllm-ascend's loop drops the result between draft steps; ours has one context for them."""
    from vllm_ascend.attention import dsa_v1

    operators = SimpleNamespace(compressor_metadata=lambda *args: args[2])
    ops = SimpleNamespace(_C_ascend=operators)
    monkeypatch.setattr(dsa_v1, "torch", SimpleNamespace(ops=ops))
    plan = SimpleNamespace(get_dsa_compressor_slot_mapping_format=lambda: 0)
    monkeypatch.setattr(dsa_v1, "get_dsa_attn_kv_plan", lambda config: plan)
    context = SimpleNamespace(additional_kwargs={})
    monkeypatch.setattr(dsa_v1, "get_forward_context", lambda: context)

    def computed(starts: str) -> Any:
        metadata = SimpleNamespace(
            cache_group_key="group",
            full_compress_cos=torch.zeros(1, 4),
            full_compress_sin=torch.zeros(1, 4),
            num_compressed_tokens=1,
            start_pos=0,
            num_actual_reqs=REQUESTS,
            query_start_loc=starts,
            block_table=None,
            storage_block_size=128,
        )
        config: Any = None
        return dsa_v1.get_or_compute_compressor_metadata(metadata, 4, config)

    assert computed("step 2") == "step 2"
    assert computed("step 3") == "step 2"
    dsa_v1.reset_compressor_metadata_cache()
    assert computed("step 3") == "step 3"


# Sparse attention whose KV cache is on the host.


def test_offloaded_rows_are_captured_with_the_requests_of_step_1(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A graph would read the second request's row from the first one's blocks."""
    import numpy as np
    from vllm_ascend.distributed.kv_transfer.sparse_kv_offload import sparse_kv_offload_manager

    from vllm_ascend_spec.methods.loops.ascend.metadata import describe_one_row_each

    config = SimpleNamespace(sparse_kv_offload_config=SimpleNamespace(enabled=True))
    monkeypatch.setattr(sparse_kv_offload_manager, "get_ascend_config", lambda: config)

    def buffer(size: int) -> Any:
        values = torch.zeros(size, dtype=torch.int64)
        return SimpleNamespace(np=np.asarray(values), gpu=values, copy_to_gpu=lambda n: None)

    starts = torch.arange(0, ROWS + 1, K + 1)
    _, token_to_req = sparse_kv_offload_manager.prepare_sparse_kv_offload_mtp_dummy_metadata(
        ROWS, REQUESTS, starts, buffer(REQUESTS), buffer(ROWS)
    )
    metadata = dummy_metadata()
    metadata.token_to_req = token_to_req
    describe_one_row_each(
        metadata,
        REQUESTS,
        REQUESTS,
        starts=torch.zeros(ROWS + 1, dtype=torch.int32),
        lengths=torch.zeros(ROWS, dtype=torch.int32),
        arange=torch.arange(ROWS + 1, dtype=torch.int32),
    )
    assert metadata.num_reqs == REQUESTS
    assert metadata.token_to_req[:REQUESTS].tolist() == [0, 0]
