"""Multi-head latent attention (2405.04434) in plain PyTorch, with DeepSeek's parameter names.

Keys and values are made of one latent vector a token; beside it stands one rotated key that all
heads share. Nothing is absorbed, so this is also what tests compare vLLM with.
"""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn

from .llama import MLP, Norm, Rotation, init_weights
from .shapes import DEEPSEEK, NORM_EPS, ROPE_THETA, VOCAB_SIZE, LatentShape

Parts = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def pair_table(length: int, head_dim: int) -> Rotation:
    """Return (cosines, sines), float32 [length, head_dim / 2] each, for :func:`rotate_pairs`."""
    frequencies = 1.0 / ROPE_THETA ** (torch.arange(0, head_dim, 2).float() / head_dim)
    angles = torch.outer(torch.arange(length).float(), frequencies)
    return angles.cos(), angles.sin()


def rotate_pairs(x: torch.Tensor, rotation: Rotation) -> torch.Tensor:
    """Rotate neighbours (GPT-J's way, not Llama's) of ``x`` [batch, heads, length, head_dim]."""
    cosines, sines = (part.to(x.dtype) for part in rotation)
    even, odd = x[..., ::2], x[..., 1::2]
    turned = torch.stack([even * cosines - odd * sines, odd * cosines + even * sines], -1)
    return turned.flatten(-2)


class LatentAttention(nn.Module):
    """DeepSeek's attention, in parts so that a draft's own loop can be unrolled over it."""

    def __init__(self, shape: LatentShape) -> None:
        super().__init__()
        self.shape = shape
        wide, inner = shape.nope_dim + shape.rope_dim, shape.nope_dim + shape.value_dim
        self.q_a_proj = nn.Linear(shape.hidden, shape.query_rank, bias=False)
        self.q_a_layernorm = Norm(shape.query_rank)
        self.q_b_proj = nn.Linear(shape.query_rank, shape.heads * wide, bias=False)
        self.kv_a_proj_with_mqa = nn.Linear(
            shape.hidden, shape.latent_rank + shape.rope_dim, bias=False
        )
        self.kv_a_layernorm = Norm(shape.latent_rank)
        self.kv_b_proj = nn.Linear(shape.latent_rank, shape.heads * inner, bias=False)
        self.o_proj = nn.Linear(shape.heads * shape.value_dim, shape.hidden, bias=False)

    def qkv(
        self,
        x: torch.Tensor,  # [batch, length, hidden]
        rotation: Rotation,
    ) -> Parts:
        """Return q, k [batch, heads, length, nope_dim + rope_dim] and v [..., value_dim]."""
        shape = self.shape
        queries = self._by_head(self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x))))
        q, q_turned = queries.split([shape.nope_dim, shape.rope_dim], -1)
        latent, shared = self.kv_a_proj_with_mqa(x).split([shape.latent_rank, shape.rope_dim], -1)
        pairs = self._by_head(self.kv_b_proj(self.kv_a_layernorm(latent)))
        k, v = pairs.split([shape.nope_dim, shape.value_dim], -1)
        k_turned = rotate_pairs(shared[:, None], rotation).expand(-1, shape.heads, -1, -1)
        q_turned = rotate_pairs(q_turned, rotation)
        return torch.cat([q, q_turned], -1), torch.cat([k, k_turned], -1), v

    def _by_head(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``x`` [batch, length, heads * size] as [batch, heads, length, size]."""
        batch, length, _ = x.shape
        return x.view(batch, length, self.shape.heads, -1).transpose(1, 2)

    def project_out(self, mixed: torch.Tensor) -> torch.Tensor:
        """Join the heads of ``mixed`` [batch, heads, length, value_dim] and project."""
        return self.o_proj(mixed.transpose(1, 2).flatten(2))

    def forward(self, x: torch.Tensor, rotation: Rotation) -> torch.Tensor:
        q, k, v = self.qkv(x, rotation)
        return self.project_out(F.scaled_dot_product_attention(q, k, v, is_causal=True))


class LatentLayer(nn.Module):
    """Pre-norm decoder layer."""

    def __init__(self, shape: LatentShape) -> None:
        super().__init__()
        self.input_layernorm = Norm(shape.hidden)
        self.post_attention_layernorm = Norm(shape.hidden)
        self.self_attn = LatentAttention(shape)
        self.mlp = MLP(shape)

    def forward(self, x: torch.Tensor, rotation: Rotation) -> torch.Tensor:
        x = x + self.self_attn(self.input_layernorm(x), rotation)
        return x + self.mlp(self.post_attention_layernorm(x))


class DeepSeek(nn.Module):
    """DeepSeek's decoder without experts; the output layer is the embedding."""

    def __init__(self, shape: LatentShape, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.shape = shape
        self.embed_tokens = nn.Embedding(VOCAB_SIZE, shape.hidden)
        self.layers = nn.ModuleList(self.new_layer(i) for i in range(shape.layers))
        self.norm = Norm(shape.hidden)
        init_weights(self, shape.layers)

    def new_layer(self, index: int) -> nn.Module:
        """Return the layer of this number, with random weights."""
        return LatentLayer(self.shape)

    def forward(self, token_ids: torch.Tensor) -> torch.Tensor:
        """Return the normed hidden states [batch, length, hidden] of ``token_ids``."""
        x = self.embed_tokens(token_ids)
        rotation = pair_table(token_ids.shape[1], self.shape.rope_dim)
        for layer in self.layers:
            x = layer(x, rotation)
        return self.norm(x)

    def states(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the states that an MTP layer reads, and the normed ones: the same."""
        hidden = self(tokens)
        return hidden, hidden

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return logits [..., VOCAB_SIZE] of ``hidden`` [..., hidden]."""
        return F.linear(hidden, self.embed_tokens.weight)


def load(folder: Path) -> DeepSeek:
    """Load the zoo's DeepSeek, without its MTP layer."""
    model, state = DeepSeek(DEEPSEEK, seed=0), load_file(folder / "model.safetensors")
    own = {name: state[f"model.{name}"].float() for name in model.state_dict()}
    model.load_state_dict(own)
    return model.requires_grad_(False).eval()


def config(shape: LatentShape = DEEPSEEK) -> dict[str, object]:
    """Return the ``config.json`` of a DeepSeek of this shape, by default the zoo's."""
    return {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "vocab_size": VOCAB_SIZE,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_nextn_predict_layers": 1,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.heads,
        "q_lora_rank": shape.query_rank,
        "kv_lora_rank": shape.latent_rank,
        "qk_nope_head_dim": shape.nope_dim,
        "qk_rope_head_dim": shape.rope_dim,
        "v_head_dim": shape.value_dim,
        # No layer has experts; what says how they would be is there because vLLM reads it.
        "first_k_dense_replace": shape.layers + 1,
        "moe_layer_freq": 1,
        "n_routed_experts": 2,
        "n_shared_experts": 1,
        "num_experts_per_tok": 1,
        "moe_intermediate_size": 64,
        "n_group": 1,
        "topk_group": 1,
        "topk_method": "noaux_tc",
        "norm_topk_prob": True,
        "scoring_func": "sigmoid",
        "routed_scaling_factor": 1.0,
        "max_position_embeddings": 2048,
        "rms_norm_eps": NORM_EPS,
        "rope_theta": ROPE_THETA,
        "rope_parameters": {"rope_type": "default", "rope_theta": ROPE_THETA},
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "attention_bias": False,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "pad_token_id": 0,
        "dtype": "bfloat16",
    }
