"""Qwen3.5: the text model as transformers has it, and its layer for multi-token prediction.

Three of four layers are Gated DeltaNet (2412.06464), which keeps one state of a fixed size instead
of keys and values; the fourth is attention with a gate on what it returns.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

from .llama import Norm, Rotation, rotary_table, rotate
from .mtp_layer import MtpLayer
from .shapes import END_OF_TEXT_ID, MAX_POSITIONS, NORM_EPS, QWEN35, ROPE_THETA, VOCAB_SIZE

# The share of a head that is rotated.
ROTATED = 0.25


def config() -> dict[str, Any]:
    """Return the ``config.json`` of the zoo's Qwen3.5."""
    shape = QWEN35
    return {
        "architectures": ["Qwen3_5ForCausalLM"],
        "model_type": "qwen3_5_text",
        "vocab_size": VOCAB_SIZE,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "mtp_num_hidden_layers": 1,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "full_attention_interval": 4,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "attn_output_gate": True,
        "max_position_embeddings": MAX_POSITIONS,
        "rms_norm_eps": NORM_EPS,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": ROPE_THETA,
            "partial_rotary_factor": ROTATED,
            # Of a text all three positions are the same.
            "mrope_section": [3, 3, 2],
            "mrope_interleaved": True,
        },
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "attention_bias": False,
        "bos_token_id": END_OF_TEXT_ID,
        "eos_token_id": END_OF_TEXT_ID,
        "pad_token_id": END_OF_TEXT_ID,
        "dtype": "bfloat16",
    }


class Qwen35(nn.Module):
    """The decoder with tied embeddings.

    Args:
        seed: of the weights.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        settings = {k: v for k, v in config().items() if k not in ("architectures", "model_type")}
        self.model = Qwen3_5ForCausalLM(Qwen3_5TextConfig(**settings)).model.float()

    @property
    def embed_tokens(self) -> nn.Embedding:
        """The embeddings, which are the output layer, too."""
        return self.model.embed_tokens

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the normed hidden states [batch, length, hidden] of ``tokens``."""
        return self.model(input_ids=tokens, use_cache=False).last_hidden_state

    def states(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the states that the MTP layer reads, which are the normed ones, and these."""
        hidden = self(tokens)
        return hidden, hidden

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return logits [..., VOCAB_SIZE] of ``hidden`` [..., hidden]."""
        return F.linear(hidden, self.embed_tokens.weight)


class GatedAttention(nn.Module):
    """Attention with normed heads, rotated in part, and a gate; split as ``SplitAttention`` is."""

    def __init__(self) -> None:
        super().__init__()
        shape = QWEN35
        self.shape = shape
        width, kv_width = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        # Each head's query and gate.
        self.q_proj = nn.Linear(shape.hidden, 2 * width, bias=False)
        self.k_proj = nn.Linear(shape.hidden, kv_width, bias=False)
        self.v_proj = nn.Linear(shape.hidden, kv_width, bias=False)
        self.o_proj = nn.Linear(width, shape.hidden, bias=False)
        self.q_norm, self.k_norm = Norm(shape.head_dim), Norm(shape.head_dim)
        self._gate: torch.Tensor | None = None

    def qkv(
        self,
        x: torch.Tensor,  # [batch, length, hidden]
        rotation: Rotation,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return q, k and v [batch, heads, length, head_dim], and keep the gate."""
        batch, length, _ = x.shape
        size = self.shape.head_dim
        q, gate = self.q_proj(x).view(batch, length, -1, 2 * size).chunk(2, -1)
        self._gate = gate.flatten(2)
        k = self.k_norm(self.k_proj(x).view(batch, length, -1, size))
        v = self.v_proj(x).view(batch, length, -1, size)
        q, k, v = (part.transpose(1, 2) for part in (self.q_norm(q), k, v))
        q, k = rotate_first(q, rotation), rotate_first(k, rotation)
        groups = self.shape.heads // self.shape.kv_heads
        return q, k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)

    def project_out(self, mixed: torch.Tensor) -> torch.Tensor:
        """Join the heads of ``mixed`` [batch, heads, length, head_dim], gate and project."""
        assert self._gate is not None
        return self.o_proj(mixed.transpose(1, 2).flatten(2) * self._gate.sigmoid())


def rotation_of(length: int) -> Rotation:
    """Return the rotary table of ``length`` positions for the part that is rotated."""
    return rotary_table(length, int(QWEN35.head_dim * ROTATED))


def rotate_first(x: torch.Tensor, rotation: Rotation) -> torch.Tensor:
    """Rotate the first dimensions of ``x`` [batch, heads, length, head_dim]."""
    width = rotation[0].shape[-1]
    return torch.cat([rotate(x[..., :width], rotation), x[..., width:]], -1)


def names_of_layer(layer: MtpLayer) -> dict[str, torch.Tensor]:
    """Return the layer's weights under Qwen3.5's names; its norms multiply by 1 + weight."""
    outside = {
        "embedding_norm": "pre_fc_norm_embedding",
        "state_norm": "pre_fc_norm_hidden",
        "fuse": "fc",
        "norm": "norm",
    }
    state = {}
    for name, value in layer.state_dict().items():
        module, _, rest = name.partition(".")
        place = f"{outside[module]}.{rest}" if module in outside else f"layers.0.{name}"
        state[f"mtp.{place}"] = value - 1 if "norm" in place else value
    return state
