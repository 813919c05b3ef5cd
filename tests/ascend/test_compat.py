"""Patches of vllm-ascend, each with the stock fault that it patches."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from contextlib import nullcontext, suppress
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch

from tests.patches.cases import TakeOut, is_applied
from tests.patches.test_thinking_budget_state import leave_and_move, reasoning
from vllm_ascend_spec.patches import (
    npu_additional_config,
    npu_logprobs_mode,
    npu_mtp_first_position,
    npu_rotary_tables,
    npu_sink_lengths,
    npu_window_tokens,
    registry,
)
from vllm_ascend_spec.patches.upstream import thinking_budget_state


def test_stages_apply_every_patch_once() -> None:
    for stage in ("npu_platform", "npu"):
        patches = list(registry.needed(stage))
        registry.apply(stage)
        once = [patch._patches._undo[:] for patch in patches]
        registry.apply(stage)
        assert patches
        assert all(map(is_applied, patches))
        assert [patch._patches._undo for patch in patches] == once
        registry.revert(stage)
        assert not any(map(is_applied, patches))
    registry.apply("npu_platform")  # which the platform did as it was imported


def test_sampler_gets_the_models_logprobs_mode(
    take_out: TakeOut,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import vllm.config
    from vllm_ascend.worker import model_runner_v1

    config = SimpleNamespace(model_config=SimpleNamespace(logprobs_mode="processed_logprobs"))
    monkeypatch.setattr(vllm.config, "get_current_vllm_config", lambda: config)
    take_out(npu_logprobs_mode)
    assert model_runner_v1.AscendSampler().logprobs_mode == "raw_logprobs"
    npu_logprobs_mode.apply()
    sampler = model_runner_v1.AscendSampler()
    assert sampler.logprobs_mode == "processed_logprobs"
    assert sampler.topk_topp_sampler.logprobs_mode == "processed_logprobs"


HEAD = 128


def attend(metadata: dict[str, Any], length: int, **layer: Any) -> list[int]:
    """Return how many keys each row of a step sees in a layer of vllm-ascend with one head.

    Args:
        metadata: what the step's metadata has beside ``length``.
        length: tokens of the one request, whose last ``actual_seq_lengths_q[-1]`` are the rows.
        layer: further arguments of the layer.
    """
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm_ascend.attention import attention_v1

    with set_current_vllm_config(VllmConfig()):
        built = attention_v1.AscendAttentionBackendImpl(
            1,
            HEAD,
            1.0,
            1,
            None,
            kv_cache_dtype="auto",
            logits_soft_cap=None,
            attn_type="decoder",
            kv_sharing_target_layer_name=None,
            **layer,
        )
    rows = metadata["actual_seq_lengths_q"][-1]
    described = SimpleNamespace(
        attn_mask=torch.ones(2048, 2048, dtype=torch.int8).triu(1).npu(),
        causal=True,
        num_actual_tokens=rows,
        num_decodes=0,
        seq_lens_list=[length],
        block_tables=torch.zeros(1, 1, dtype=torch.int32).npu(),
        **metadata,
    )
    # All keys are as good, so what a row gets is its values' mean: more than 0 for each it sees.
    values = torch.eye(HEAD, device="npu").unsqueeze(1)
    built.key_cache = torch.zeros(1, HEAD, 1, HEAD, device="npu")
    built.value_cache = values.unsqueeze(0)
    query = torch.zeros(rows, 1, HEAD, device="npu")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention_v1, "_EXTRA_CTX", SimpleNamespace(capturing=False))
        found = built.forward_fused_infer_attention(
            query, torch.zeros_like(values), values, described, torch.zeros_like(query)
        )
    return (found.cpu() > 0).sum(-1).flatten().tolist()


def test_a_window_is_as_long_as_vllms(take_out: TakeOut) -> None:
    """A row sees itself and ``window - 1`` tokens before it."""
    from vllm_ascend.attention.attention_v1 import AscendAttentionState

    length, window = 24, 8
    prompt = {
        "attn_state": AscendAttentionState.PrefillNoCache,
        "actual_seq_lengths_q": [length],
    }
    take_out(npu_window_tokens)
    seen = attend(prompt, length, sliding_window=window)
    assert seen == [min(row + 1, window + 1) for row in range(length)]
    npu_window_tokens.apply()
    seen = attend(prompt, length, sliding_window=window)
    assert seen == [min(row + 1, window) for row in range(length)]


def test_drafts_are_verified_in_layers_with_sinks(take_out: TakeOut) -> None:
    from vllm_ascend.attention.attention_v1 import AscendAttentionState

    verification = {
        "attn_state": AscendAttentionState.DecodeOnly,
        "actual_seq_lengths_q": [4],
    }
    layer = {"sliding_window": None, "sinks": torch.zeros(1, device="npu")}
    take_out(npu_sink_lengths)
    with pytest.raises(RuntimeError, match="ends at 1, the tensor has 4 tokens"):
        attend(verification, 24, **layer)
    npu_sink_lengths.apply()
    assert attend(verification, 24, **layer) == [21, 22, 23, 24]


@pytest.mark.parametrize("sizes", [(64, 64), (64, 128)])
def test_heads_of_several_sizes_need_no_tables_of_cosines(
    sizes: tuple[int, int], take_out: TakeOut, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Layers read their own embedding's; tables as wide as the widest head cannot be filled."""
    from vllm_ascend.ops import rotary_embedding as rotary
    from vllm_ascend.worker import model_runner_v1

    monkeypatch.setattr(rotary, "is_vl_model", lambda _: False)
    monkeypatch.setattr(rotary, "has_rope", lambda _: True)
    # As the embedding that was made first has it.
    monkeypatch.setattr(rotary, "_cos_sin_cache", torch.ones(16, sizes[0]))
    varies = [{"head_size": size} for size in sizes] if len(set(sizes)) > 1 else None
    model = SimpleNamespace(
        use_mla=False,
        hf_text_config=SimpleNamespace(),
        get_head_size=lambda: max(sizes),
        model_arch_config=SimpleNamespace(per_layer_overrides=varies),
    )
    scheduler = SimpleNamespace(max_num_batched_tokens=8)
    config = SimpleNamespace(model_config=model, scheduler_config=scheduler)

    def fill() -> None:
        for name in ("_cos", "_sin", "_cos_mla", "_sin_mla"):
            monkeypatch.setattr(rotary, name, None)
        model_runner_v1.set_cos_and_sin(config, 8, 1, torch.float32, "cpu")
        rotary.update_cos_sin(torch.arange(4))

    take_out(npu_rotary_tables)
    with pytest.raises(RuntimeError, match="expanded size") if varies else nullcontext():
        fill()
    npu_rotary_tables.apply()
    fill()
    assert (rotary._cos is None) == (varies is not None)


def test_thinking_budgets_of_vllm_ascends_batch_are_patched(
    take_out: TakeOut,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It builds vLLM's holder of budgets, which the patch of the stage before the runner is for."""
    from vllm_ascend.worker import npu_input_batch

    # It asks for process groups, and has nothing to do with budgets.
    monkeypatch.setattr(npu_input_batch, "MultiGroupBlockTable", MagicMock())

    def make_batch() -> Any:
        return npu_input_batch.NPUInputBatch(
            max_num_reqs=4,
            max_model_len=32,
            max_num_batched_tokens=32,
            device=torch.device("cpu"),
            pin_memory=False,
            vocab_size=16,
            block_sizes=[16],
            kernel_block_sizes=[[16]],
            reasoning_config=reasoning(),
        )

    take_out(thinking_budget_state)
    assert leave_and_move(make_batch()) == {"free": 3}
    thinking_budget_state.apply()
    assert leave_and_move(make_batch()) == {}


def refused_keys(**options: Any) -> set[str]:
    """Return the options that vllm-ascend's config class refuses."""
    from pydantic import ValidationError
    from vllm_ascend import ascend_config

    with pytest.raises(ValidationError) as raised:  # it misses others in any case
        ascend_config.AscendConfig(**options)
    return {
        error["loc"][0]
        for error in raised.value.errors()
        if error["type"] == "unexpected_keyword_argument"
    }


def test_our_section_is_not_vllm_ascends(take_out: TakeOut) -> None:
    options = {"ascend_spec": {"verify_rule": "block"}, "ascend_specs": {}}
    take_out(npu_additional_config)
    assert refused_keys(**options) == {"ascend_spec", "ascend_specs"}
    npu_additional_config.apply()
    for _ in range(2):  # the first time pydantic completes the class
        assert refused_keys(**options) == {"ascend_specs"}


class Layer:
    """What a layer's ``forward`` looks at until the first position is blank; keeps what it got."""

    embeddings: torch.Tensor

    def __getattr__(self, name: str) -> Any:
        def norm(embeddings: torch.Tensor) -> None:
            self.embeddings = embeddings
            raise PastTheMaskError

        return norm


class PastTheMaskError(Exception):
    """A layer's ``forward`` got past its first line."""


def forward(module: str, name: str) -> tuple[Layer, Callable[[], None]]:
    """Return a layer of vLLM's, and what runs it on rows at positions 0, 3 and 0."""
    stock = getattr(importlib.import_module(f"vllm.model_executor.models.{module}"), name).forward
    given = {
        "inputs_embeds": torch.ones(3, 4, device="npu"),
        "positions": torch.tensor([0, 3, 0], device="npu"),
    }
    layer, parameters = Layer(), list(inspect.signature(stock).parameters)[1:]
    arguments = [given.get(parameter) for parameter in parameters]

    def run() -> None:
        with suppress(PastTheMaskError):
            stock(layer, *arguments)

    return layer, run


@pytest.mark.parametrize(("module", "name"), npu_mtp_first_position.LAYERS.items())
def test_mtp_layers_blank_the_first_position_in_a_graph(
    module: str, name: str, take_out: TakeOut
) -> None:
    take_out(npu_mtp_first_position)
    layer, run = forward(module, name)
    with torch.npu.graph(torch.npu.NPUGraph()), pytest.raises(RuntimeError, match="host waits"):
        run()
    run()
    assert layer.embeddings[:, 0].tolist() == [0, 1, 0]
    npu_mtp_first_position.apply()
    ours, run = forward(module, name)
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        run()
    assert ours.embeddings.tolist() == torch.ones(3, 4).tolist()
    graph.replay()
    assert ours.embeddings.tolist() == layer.embeddings.tolist()
    # What ops make of it are plain tensors.
    assert type(ours.embeddings + 1) is torch.Tensor
