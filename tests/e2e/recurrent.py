"""Targets with Gated DeltaNet layers: random ones, and what transformers makes of a text."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.marks import unless
from tests.zoo import ZOO
from vllm_ascend_spec.upstream import limits

NEEDS_LAYERS = [
    unless(limits.NO_GATED_DELTA_NET_ON_CPU),
    pytest.mark.skipif(
        importlib.util.find_spec("torchvision") is None,
        reason="needs torchvision; tests/ascend/test_state_targets.py runs it where that is",
    ),
]
# Float32, added up in another order.
ROUNDING = 1e-3

HIDDEN = 128
# The one layer of four that is attention.
ATTENTION = "model.layers.3."
SETTINGS: dict[str, Any] = {
    "vocab_size": 4096,
    "hidden_size": HIDDEN,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 64,
    "linear_value_head_dim": 64,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64,
    "max_position_embeddings": 2048,
    "initializer_range": 0.1,
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": 0,
}


def qwen3_next() -> Any:
    """Return a Qwen3-Next."""
    from transformers import Qwen3NextConfig, Qwen3NextForCausalLM

    return Qwen3NextForCausalLM(Qwen3NextConfig(**SETTINGS, intermediate_size=256))


def qwen3_5_moe() -> Any:
    """Return a Qwen3.5 with experts."""
    from transformers import Qwen3_5MoeForCausalLM, Qwen3_5MoeTextConfig

    return Qwen3_5MoeForCausalLM(Qwen3_5MoeTextConfig(**SETTINGS))


MODELS: dict[str, tuple[Callable[[], Any], str]] = {
    "Qwen3-Next": (qwen3_next, "num_nextn_predict_layers"),
    "Qwen3.5 with experts": (qwen3_5_moe, "mtp_num_hidden_layers"),
}


def write_model(name: str, folder: Path) -> str:
    """Write one of :data:`MODELS`; its MTP layer is a copy of its layer of attention."""
    make, num_layers = MODELS[name]
    torch.manual_seed(0)
    make().float().save_pretrained(folder)
    path = folder / "model.safetensors"
    state = load_file(path)
    state |= {
        f"mtp.layers.0.{tensor.removeprefix(ATTENTION)}": value.clone()
        for tensor, value in state.items()
        if tensor.startswith(ATTENTION)
    }
    # Its norms multiply by 1 + weight.
    norms = ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden")
    state |= {f"mtp.{norm}.weight": torch.zeros(HIDDEN) for norm in norms}
    state["mtp.fc.weight"] = torch.randn(HIDDEN, 2 * HIDDEN) * 0.05
    save_file(state, path, {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {num_layers: 1}))
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(ZOO / "target" / file, folder / file)
    return str(folder)


@torch.no_grad()
def logprobs_of_transformers(model: str, texts: list[list[int]]) -> list[torch.Tensor]:
    """Return the logprob of each token but the first, float32 [num_tokens - 1] each."""
    from transformers import AutoModelForCausalLM

    reference = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    found = []
    for text in texts:
        ids = torch.tensor([text])
        logprobs = reference(ids).logits[0, :-1].log_softmax(-1)
        found.append(logprobs.gather(1, ids[0, 1:, None])[:, 0])
    return found


def assert_logprobs_of_transformers(model: str, outputs: list[Any], texts: list[list[int]]) -> None:
    for output, whole in zip(outputs, logprobs_of_transformers(model, texts), strict=True):
        pairs = zip(output.logprobs, output.token_ids, strict=True)
        ours = torch.tensor([place[token].logprob for place, token in pairs])
        assert (ours - whole[-len(ours) :]).abs().max() < ROUNDING
