"""A Llama draft called without the module machinery, on the CPU.

A one-layer draft of a small model computes for about 0.1 ms on one core; going through some twenty
``nn.Module`` calls, custom-op dispatches and forward-context look-ups costs twice as much again.
Here the same kernels of vLLM are called one after another on the same weights and the same KV
cache (model_executor/models/llama.py, llama_eagle.py). Drafts may differ from the module's in the
last bit of a rounding; what is accepted decides the target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from vllm.model_executor.layers.attention import Attention
from vllm.model_executor.layers.layernorm import RMSNorm
from vllm.model_executor.layers.rotary_embedding.base import RotaryEmbedding
from vllm.model_executor.models import llama, llama_eagle
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackendImpl

MODELS = (llama_eagle.EagleLlamaForCausalLM, llama.LlamaForCausalLM)
LAYERS = (llama_eagle.LlamaDecoderLayer, llama.LlamaDecoderLayer)

Linear = Callable[[torch.Tensor], torch.Tensor]
Norm = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class DirectLayer:
    """Kernels and weights of one decoder layer."""

    input_norm: Norm | None
    qkv: Linear
    output: Linear
    post_norm: Norm
    gate_up: Linear
    down: Linear
    attention: Attention
    rotary: Any
    cos_sin: torch.Tensor
    sizes: tuple[int, int, int]

    def forward(
        self,
        x: torch.Tensor,  # [num_tokens, hidden_size]
        positions: torch.Tensor,  # [num_tokens]
        metadata: Any,
        slots: torch.Tensor,  # [num_tokens]
    ) -> torch.Tensor:
        """Run the layer on the residual stream and return it."""
        normed = x if self.input_norm is None else self.input_norm(x)
        x = x + self.output(self._attend(normed, positions, metadata, slots))
        up = self.gate_up(self.post_norm(x))
        activated = up.new_empty((up.shape[0], up.shape[1] // 2))
        torch.ops._C.silu_and_mul(activated, up)
        return x + self.down(activated)

    def _attend(
        self,
        x: torch.Tensor,  # [num_tokens, hidden_size]
        positions: torch.Tensor,  # [num_tokens]
        metadata: Any,
        slots: torch.Tensor,  # [num_tokens]
    ) -> torch.Tensor:
        attention, rotary = self.attention, self.rotary
        q, k, v = self.qkv(x).split(self.sizes, dim=-1)
        torch.ops._C.rotary_embedding(
            positions, q, k, rotary.head_size, self.cos_sin, rotary.is_neox_style
        )
        heads = (x.shape[0], -1, attention.head_size)
        k, v = k.view(heads), v.view(heads)
        attention.impl.do_kv_cache_update(attention, k, v, attention.kv_cache, slots)
        mixed = q.new_empty((x.shape[0], attention.num_heads, attention.head_size))
        attention.impl.forward(
            attention, q.view(heads), k, v, attention.kv_cache, metadata, output=mixed
        )
        return mixed.view(x.shape[0], -1)


class DirectLlama:
    """A draft model whose forward pass is a list of kernel calls.

    Args:
        model: vLLM's Llama or EAGLE-Llama; :func:`obstacle` must have found nothing.
    """

    def __init__(self, model: Any) -> None:
        inner = model.model
        self.embedding = inner.embed_tokens.weight
        self.fuse = _linear(inner.fc) if hasattr(inner, "fc") else None
        self.layers = [_direct_layer(layer) for layer in inner.layers]
        self.final_norm = _norm(inner.norm) if hasattr(inner, "norm") else None
        self.head = _linear(model.lm_head)
        self.vocab_size = model.logits_processor.org_vocab_size

    def forward(
        self,
        input_ids: torch.Tensor,  # [num_tokens]
        positions: torch.Tensor,  # [num_tokens]
        hidden: torch.Tensor | None,  # [num_tokens, hidden_size]
        metadata: dict[str, Any],
        slots: torch.Tensor,  # [num_tokens]
    ) -> torch.Tensor:
        """Run the draft; write its keys and values to the KV cache.

        Args:
            input_ids: int32, the tokens.
            positions: int64, their positions.
            hidden: hidden states to fuse with the embeddings (EAGLE), or None.
            metadata: attention metadata by layer name.
            slots: int64, where keys and values go.

        Returns:
            Hidden states, [num_tokens, hidden_size].
        """
        x = F.embedding(input_ids, self.embedding)
        if self.fuse is not None:
            x = self.fuse(torch.cat([x, hidden], dim=-1))
        for layer in self.layers:
            x = layer.forward(x, positions, metadata[layer.attention.layer_name], slots)
        return x if self.final_norm is None else self.final_norm(x)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return logits [num_reqs, vocab_size] of ``hidden`` [num_reqs, hidden_size]."""
        return self.head(hidden)[:, : self.vocab_size]


def obstacle(model: Any) -> str | None:
    """Return what keeps ``model`` from being called directly, or None."""
    if type(model) not in MODELS:
        return f"the draft's architecture {type(model).__name__}"
    return next(_obstacles(model), None)


def _obstacles(model: Any) -> Iterator[str]:
    inner, head = model.model, model.logits_processor
    linears = [model.lm_head, *([inner.fc] if hasattr(inner, "fc") else [])]
    for layer in inner.layers:
        attention = layer.self_attn
        if type(layer) not in LAYERS or type(attention) is not llama.LlamaAttention:
            yield f"the draft's layer {type(layer).__name__}"
        if not isinstance(attention.attn.impl, CPUAttentionBackendImpl):
            yield f"attention by {type(attention.attn.impl).__name__}"
        if attention.attn.query_quant is not None:
            yield "a quantized query"
        if type(attention.rotary_emb).forward_cpu is not RotaryEmbedding.forward_cpu:
            yield f"positions by {type(attention.rotary_emb).__name__}"
        linears += [attention.qkv_proj, attention.o_proj]
        linears += [layer.mlp.gate_up_proj, layer.mlp.down_proj]
    for linear in linears:
        if not hasattr(linear, "cpu_linear") or getattr(linear, "tp_size", 1) > 1:
            yield f"the linear layer {type(linear).__name__} (quantized or tensor parallel)"
    if head.soft_cap is not None or head.scale != 1.0 or head.logits_as_input:
        yield "scaled or capped logits"


def _linear(module: Any) -> Linear:
    kernel, weight, bias = module.cpu_linear, module.weight, getattr(module, "bias", None)
    return lambda x: kernel(x, weight, bias)


def _norm(module: Any) -> Norm | None:
    if not isinstance(module, RMSNorm):
        return None
    weight, epsilon = module.weight.data, module.variance_epsilon
    return lambda x: F.rms_norm(x, weight.shape, weight, epsilon)


def _direct_layer(layer: Any) -> DirectLayer:
    attention, mlp = layer.self_attn, layer.mlp
    post_norm = _norm(layer.post_attention_layernorm)
    assert post_norm is not None
    return DirectLayer(
        input_norm=_norm(layer.input_layernorm),
        qkv=_linear(attention.qkv_proj),
        output=_linear(attention.o_proj),
        post_norm=post_norm,
        gate_up=_linear(mlp.gate_up_proj),
        down=_linear(mlp.down_proj),
        attention=attention.attn,
        rotary=attention.rotary_emb,
        cos_sin=attention.rotary_emb.cos_sin_cache.to(layer.post_attention_layernorm.weight.dtype),
        sizes=(attention.q_size, attention.kv_size, attention.kv_size),
    )
