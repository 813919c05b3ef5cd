"""What cannot work on an NPU is refused at start, with the reason and what is valid."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from vllm_ascend_spec.errors import ConfigError, PlatformError

FULL, PIECEWISE, DECODE = "FULL", "PIECEWISE", "FULL_DECODE_ONLY"


def make_proposer(mode: str, *, graphs: bool = True, sampled: bool = False, **spec: Any) -> Any:
    from vllm.config import CUDAGraphMode

    spec = {
        "num_speculative_tokens_per_batch_size": None,
        "draft_sample_method": "probabilistic" if sampled else "greedy",
        **spec,
    }
    return SimpleNamespace(
        compilation_config=SimpleNamespace(cudagraph_mode=CUDAGraphMode[mode]),
        use_cuda_graph=graphs,
        _enable_probabilistic_draft_probs=sampled,
        speculative_config=SimpleNamespace(**spec),
    )


def require_possible(proposer: Any) -> None:
    from vllm_ascend_spec.methods.loops.ascend import limits

    limits.require_possible(proposer)


SCHEDULE = {"num_speculative_tokens_per_batch_size": [[1, 4, 3], [5, 8, 1]]}


@pytest.mark.parametrize(
    ("mode", "given", "option"),
    [
        (FULL, {}, "compilation_config.cudagraph_mode='FULL'"),
        (DECODE, {"sampled": True}, "speculative_config.draft_sample_method='probabilistic'"),
        (DECODE, SCHEDULE, "speculative_config.num_speculative_tokens_per_batch_size=[[1, 4, 3]"),
    ],
)
def test_full_graphs_refuse(mode: str, given: dict[str, Any], option: str) -> None:
    with pytest.raises(ConfigError) as raised:
        require_possible(make_proposer(mode, **given))
    assert str(raised.value).startswith(option)
    # The same without graphs for the draft is fine.
    require_possible(make_proposer(mode, graphs=False, **given))


@pytest.mark.parametrize("given", [{}, {"sampled": True}, SCHEDULE])
def test_piecewise_graphs_refuse_nothing(given: dict[str, Any]) -> None:
    require_possible(make_proposer(PIECEWISE, **given))


def test_mtp_layers_with_several_cache_groups_are_refused() -> None:
    from vllm_ascend.spec_decode.multi_kv_cache_group_proposer import is_multi_kv_cache_group_mtp

    from vllm_ascend_spec.methods.loops.ascend.limits import SEVERAL_CACHE_GROUPS

    def drafting_with(model_type: str) -> Any:
        hf_config = SimpleNamespace(model_type=model_type)
        draft = SimpleNamespace(hf_config=hf_config)
        return make_proposer(DECODE, method="mtp", draft_model_config=draft)

    for model_type in SEVERAL_CACHE_GROUPS:
        proposer = drafting_with(model_type)
        # vllm-ascend has another proposer for them.
        assert is_multi_kv_cache_group_mtp(proposer)
        with pytest.raises(ConfigError, match="'glm5_next_mtp', whose KV cache") as raised:
            require_possible(proposer)
        assert str(raised.value).startswith("speculative_config.method='mtp'")
    require_possible(drafting_with("deepseek_mtp"))


def test_npu_with_another_worker_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm_ascend_spec.platform import npu

    npu.require_stock_worker()
    worker = "vllm_ascend._310p.worker_310p.NPUWorker310"
    monkeypatch.setattr(npu, "worker_of_vllm_ascend", lambda: worker)
    with pytest.raises(PlatformError, match=r"NPUWorker310.*Remedy"):
        npu.require_stock_worker()


def test_stock_worker_is_the_one_that_ours_extends() -> None:
    from vllm_ascend_spec.platform import npu
    from vllm_ascend_spec.worker.npu import SpecNPUWorker

    (stock,) = SpecNPUWorker.__bases__
    assert f"{stock.__module__}.{stock.__qualname__}" == npu.STOCK_WORKER
    assert f"{SpecNPUWorker.__module__}.{SpecNPUWorker.__qualname__}" == npu.WORKER


def test_trees_are_refused_where_the_targets_attention_cannot_be_in_two_parts() -> None:
    from vllm_ascend.attention.attention_v1 import AscendAttentionBackendImpl

    from vllm_ascend_spec.worker.npu_trees import problem_of

    def layer_with(**attributes: Any) -> Any:
        impl: Any = object.__new__(AscendAttentionBackendImpl)
        plain = dict.fromkeys(("sliding_window", "sinks", "kv_sharing_target_layer_name"))
        plain |= dict.fromkeys(("pcp_enabled", "use_bnsd_kv_cache"), False)
        vars(impl).update(plain | attributes)
        return SimpleNamespace(impl=impl)

    assert problem_of(layer_with()) is None
    assert problem_of(layer_with(sliding_window=128)) == "a sliding window"
    assert problem_of(layer_with(sinks=object())) == "attention sinks"
    assert problem_of(layer_with(pcp_enabled=True)) == "prefill context parallelism"
    shares = layer_with(kv_sharing_target_layer_name="model.layers.0")
    assert problem_of(shares) == "keys and values that layers share"
    assert problem_of(SimpleNamespace(impl=object())) == "attention of object"
