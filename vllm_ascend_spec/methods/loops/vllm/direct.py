"""A Llama draft called without the module machinery, on the CPU.

A one-layer draft of a small model computes for about 0.1 ms on one core; some twenty ``nn.Module``
calls, custom-op dispatches and forward-context look-ups cost twice as much again. This module
calls the same vLLM kernels one after another on the same weights and the same KV cache
(vllm/model_executor/models/llama.py, vllm/model_executor/models/llama_eagle.py,
vllm/model_executor/models/llama_eagle3.py). The last bit of a logit may differ from the module's,
and with it a draft. The output does not: the target decides which drafts are accepted.
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
from vllm.model_executor.models import llama, llama_eagle, llama_eagle3
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackendImpl

from vllm_ascend_spec.methods.loops.argmax import argmax
from vllm_ascend_spec.methods.loops.vllm.step_plan import LastRows
from vllm_ascend_spec.upstream.cpu_attention import WRITES_APART

LAYERS = (
    llama_eagle.LlamaDecoderLayer,
    llama_eagle3.LlamaDecoderLayer,
    llama.LlamaDecoderLayer,
)

Linear = Callable[[torch.Tensor], torch.Tensor]
Norm = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class DirectLayer:
    """Kernels and weights of one decoder layer.

    Attributes:
        state_norm: norm of the hidden states in a layer that reads them beside embeddings
            (EAGLE-3); None for other layers.
        keeps_normed: whether such a layer adds its output to the normalized states.
    """

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
    state_norm: Norm | None = None
    keeps_normed: bool = False

    def forward(
        self,
        x: torch.Tensor,  # [num_tokens, hidden_size]
        positions: torch.Tensor,  # [num_tokens]
        metadata: Any,
        slots: torch.Tensor,  # [num_tokens]
        embeddings: torch.Tensor | None = None,  # [num_tokens, hidden_size]
        rows: torch.Tensor | None = None,  # [num_rows]
    ) -> torch.Tensor:
        """Run the layer on the residual stream and return it.

        Args:
            x: the residual stream.
            positions: int64.
            metadata: attention metadata of ``rows``; with None only keys and values are written.
            slots: int64, KV cache slots of all tokens.
            embeddings: token embeddings, for a layer that reads them beside hidden states.
            rows: int64, the rows whose result is needed; None for all.
        """
        if self.state_norm is None:
            normed = x if self.input_norm is None else self.input_norm(x)
        else:
            assert self.input_norm is not None
            states = self.state_norm(x)
            normed = torch.cat([self.input_norm(embeddings), states], dim=-1)
            x = states if self.keeps_normed else x
        q = self._write(normed, positions, slots)
        if metadata is None:
            return x[:0]
        if rows is not None:
            x, q = x[rows], q[rows]
        x = x + self.output(self._attend(q, metadata))
        up = self.gate_up(self.post_norm(x))
        activated = up.new_empty((up.shape[0], up.shape[1] // 2))
        torch.ops._C.silu_and_mul(activated, up)
        return x + self.down(activated)

    def _write(
        self,
        x: torch.Tensor,  # [num_tokens, hidden_size]
        positions: torch.Tensor,  # [num_tokens]
        slots: torch.Tensor,  # [num_tokens]
    ) -> torch.Tensor:
        """Write keys and values; return queries, [num_tokens, num_heads * head_size]."""
        attention, rotary = self.attention, self.rotary
        q, k, v = self.qkv(x).split(self.sizes, dim=-1)
        torch.ops._C.rotary_embedding(
            positions, q, k, rotary.head_size, self.cos_sin, rotary.is_neox_style
        )
        heads = (x.shape[0], -1, attention.head_size)
        attention.impl.do_kv_cache_update(
            attention, k.view(heads), v.view(heads), attention.kv_cache, slots
        )
        return q

    def _attend(
        self,
        q: torch.Tensor,  # [num_rows, num_heads * head_size]
        metadata: Any,
    ) -> torch.Tensor:
        attention = self.attention
        heads = (q.shape[0], attention.num_heads, attention.head_size)
        mixed = q.new_empty(heads)
        # The kernel reads keys and values from the cache.
        attention.impl.forward(
            attention, q.view(heads), None, None, attention.kv_cache, metadata, output=mixed
        )
        return mixed.view(q.shape[0], -1)


class DirectLlama:
    """A draft model whose forward pass is a list of kernel calls.

    Args:
        model: vLLM's Llama or EAGLE-Llama; :func:`problem_of` must have found nothing.
    """

    def __init__(self, model: Any) -> None:
        inner = model.model
        self.embedding = inner.embed_tokens.weight
        self.fuse = _linear(inner.fc) if hasattr(inner, "fc") else None
        self.layers = [_direct_layer(layer, place) for place, layer in enumerate(inner.layers)]
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
        last: LastRows | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run the draft; write its keys and values to the KV cache.

        Args:
            input_ids: int32, the tokens.
            positions: int64, their positions.
            hidden: hidden states to fuse with the embeddings (EAGLE), or None.
            metadata: attention metadata by layer name; with ``last``, of all layers but the last.
            slots: int64, KV cache slots of the tokens.
            last: the rows that the last layer computes; None for all.

        Returns:
            Hidden states for logits and for the next step, [num_tokens, hidden_size] each, or
            [num_reqs, hidden_size] with ``last``.
        """
        x = F.embedding(input_ids, self.embedding)
        if self.fuse is not None:
            x = self.fuse(torch.cat([x, hidden], dim=-1))
        x = self._through_layers(x, positions, metadata, slots, None, last)
        x = x if self.final_norm is None else self.final_norm(x)
        return x, x

    def _through_layers(
        self,
        x: torch.Tensor,  # [num_tokens, hidden_size]
        positions: torch.Tensor,  # [num_tokens]
        metadata: dict[str, Any],
        slots: torch.Tensor,  # [num_tokens]
        embeddings: torch.Tensor | None,  # [num_tokens, hidden_size]
        last: LastRows | None,
    ) -> torch.Tensor:
        for layer in self.layers if last is None else self.layers[:-1]:
            own = metadata[layer.attention.layer_name]
            x = layer.forward(x, positions, own, slots, embeddings)
        if last is None:
            return x
        layer = self.layers[-1]
        own = None if last.metadata is None else last.metadata[layer.attention.layer_name]
        return layer.forward(x, positions, own, slots, embeddings, last.rows)

    def argmax(
        self,
        hidden: torch.Tensor,  # [num_reqs, hidden_size]
    ) -> torch.Tensor:
        """Return the argmax token of each request, int64 [num_reqs]."""
        return argmax(self.logits(hidden))

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Compute logits [num_reqs, vocab_size] from ``hidden`` [num_reqs, hidden_size]."""
        return self.head(hidden)[:, : self.vocab_size]


class DirectEagle3(DirectLlama):
    """An EAGLE-3 head, whose first layer reads hidden states beside embeddings.

    Args:
        model: vLLM's EAGLE-3 model; :func:`problem_of` must have found nothing.
    """

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.norms_output = bool(model.model.norm_output)
        offsets = model.draft_id_to_target_id
        # [draft_vocab_size], the target's token id for each draft token id
        self.targets = None if offsets is None else offsets + torch.arange(len(offsets))

    def forward(
        self,
        input_ids: torch.Tensor,  # [num_tokens]
        positions: torch.Tensor,  # [num_tokens]
        hidden: torch.Tensor | None,  # [num_tokens, hidden_size]
        metadata: dict[str, Any],
        slots: torch.Tensor,  # [num_tokens]
        last: LastRows | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run the draft, as :meth:`DirectLlama.forward` does."""
        assert hidden is not None
        assert self.final_norm is not None
        embeddings = F.embedding(input_ids, self.embedding)
        x = self._through_layers(hidden, positions, metadata, slots, embeddings, last)
        normed = self.final_norm(x)
        return normed, normed if self.norms_output else x

    def argmax(
        self,
        hidden: torch.Tensor,  # [num_reqs, hidden_size]
    ) -> torch.Tensor:
        """Return the argmax token of each request as a target token id, int64 [num_reqs]."""
        own = super().argmax(hidden)
        return own if self.targets is None else self.targets[own]


DIRECT: dict[type, type[DirectLlama]] = {
    llama_eagle.EagleLlamaForCausalLM: DirectLlama,
    llama_eagle3.Eagle3LlamaForCausalLM: DirectEagle3,
    llama.LlamaForCausalLM: DirectLlama,
}


def direct_of(model: Any) -> DirectLlama:
    """Wrap ``model`` to be called directly; :func:`problem_of` must have found nothing."""
    return DIRECT[type(model)](model)


def problem_of(model: Any) -> str | None:
    """Return what keeps ``model`` from being called directly, or None."""
    if type(model) not in DIRECT:
        return f"the draft's architecture {type(model).__name__}"
    return next(_problems(model), None)


def _problems(model: Any) -> Iterator[str]:
    inner, head = model.model, model.logits_processor
    linears = [model.lm_head, *([inner.fc] if hasattr(inner, "fc") else [])]
    for layer in inner.layers:
        attention = layer.self_attn
        if type(layer) not in LAYERS or type(attention) is not llama.LlamaAttention:
            yield f"the draft's layer {type(layer).__name__}"
        if not isinstance(attention.attn.impl, CPUAttentionBackendImpl):
            yield f"attention by {type(attention.attn.impl).__name__}"
        if not WRITES_APART:
            yield "vLLM 0.23's attention, which writes keys and values itself"
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

    def norm(x: torch.Tensor) -> torch.Tensor:
        output = torch.empty_like(x)
        torch.ops._C.rms_norm(output, x, weight, epsilon)
        return output

    return norm


def _direct_layer(layer: Any, place: int) -> DirectLayer:
    """Return a layer's kernels; EAGLE-3's first layer reads hidden states beside embeddings."""
    attention, mlp = layer.self_attn, layer.mlp
    reads_states = place == 0 and hasattr(layer, "hidden_norm")
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
        state_norm=_norm(layer.hidden_norm) if reads_states else None,
        keeps_normed=reads_states and layer._residual_norm == layer._norm_before_residual,
    )
