"""DeepSeek V3.2 (2512.02556) in plain PyTorch: MLA with an indexer, and experts.

Up to ``index_topk`` tokens the indexer selects everything, so attention is dense here. The indexer
is trained all the same, to give its best scores to what the attention looks at.
"""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn

from .llama import MLP, Norm, Rotation, rotary_table, rotate
from .mla import DeepSeek, LatentAttention, Parts, config
from .shapes import DEEPSEEK_V32, Shape, SparseShape

# Of an indexer's keys, in vllm/model_executor/models/deepseek_v2.py.
INDEX_NORM_EPS = 1e-6
# As long as guides ask DeepSeek to be; the zoo's texts are shorter.
LONGEST = 40960
# How much the choice of an expert that has too many or too few tokens changes in a step
# (2408.15664).
BALANCE_RATE = 1e-3


class Indexer(nn.Module):
    """Scores of earlier tokens for each token: sums over heads of weight * ReLU(query * key)."""

    def __init__(self, shape: SparseShape) -> None:
        super().__init__()
        self.shape = shape
        self.wq_b = nn.Linear(shape.query_rank, shape.index_heads * shape.index_dim, bias=False)
        self.wk = nn.Linear(shape.hidden, shape.index_dim, bias=False)
        self.k_norm = nn.LayerNorm(shape.index_dim, INDEX_NORM_EPS)
        self.weights_proj = nn.Linear(shape.hidden, shape.index_heads, bias=False)

    def forward(
        self,
        x: torch.Tensor,  # [batch, length, hidden]
        queries: torch.Tensor,  # [batch, length, query_rank], normed
    ) -> torch.Tensor:
        """Return the scores [batch, length, length], -inf where a token is a later one."""
        batch, length, _ = x.shape
        rotation = rotary_table(length, self.shape.rope_dim)
        q = self.wq_b(queries).view(batch, length, self.shape.index_heads, -1).transpose(1, 2)
        k = self.k_norm(self.wk(x))[:, None]
        q, k = self._rotate_first(q, rotation), self._rotate_first(k, rotation)
        scale = (self.shape.index_dim * self.shape.index_heads) ** -0.5
        weights = self.weights_proj(x).transpose(1, 2)[..., None] * scale
        scores = (weights * F.relu(q @ k.transpose(-1, -2))).sum(1)
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        return scores.masked_fill(later, float("-inf"))

    def _rotate_first(self, x: torch.Tensor, rotation: Rotation) -> torch.Tensor:
        """Rotate the first dimensions of ``x`` [batch, heads, length, index_dim] by halves."""
        turned, rest = x[..., : self.shape.rope_dim], x[..., self.shape.rope_dim :]
        return torch.cat([rotate(turned, rotation), rest], -1)


class SparseAttention(LatentAttention):
    """DeepSeek's attention beside its indexer.

    Attributes:
        seen: what the attention read last, [batch, length, hidden], with ``remembers``.
        remembers: whether it is kept.
    """

    def __init__(self, shape: SparseShape) -> None:
        super().__init__(shape)
        self.indexer = Indexer(shape)
        self.remembers = False
        self.seen: torch.Tensor | None = None

    def qkv(
        self,
        x: torch.Tensor,  # [batch, length, hidden]
        rotation: Rotation,
    ) -> Parts:
        """Return queries, keys and values as :class:`LatentAttention` does."""
        if self.remembers:
            self.seen = x
        return super().qkv(x, rotation)

    @torch.no_grad()
    def looked_at(self, rotation: Rotation) -> torch.Tensor:
        """Return where the heads look for what was seen last, on average, [batch, length, length].

        Args:
            rotation: rotary table of ``length`` positions.
        """
        assert self.seen is not None
        q, k, _ = super().qkv(self.seen, rotation)
        scores = (q @ k.transpose(-1, -2)).float() * q.shape[-1] ** -0.5
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        return scores.masked_fill(later, float("-inf")).softmax(-1).mean(1)

    def index_scores(self) -> torch.Tensor:
        """Return the indexer's scores for what was seen last, float32 [batch, length, length]."""
        assert self.seen is not None
        with torch.no_grad():
            queries = self.q_a_layernorm(self.q_a_proj(self.seen))
        return self.indexer(self.seen, queries).float()


class Router(nn.Module):
    """What chooses experts, by probability and a bias that keeps them equally busy (2408.15664)."""

    def __init__(self, shape: SparseShape) -> None:
        super().__init__()
        self.chosen = shape.chosen
        self.weight = nn.Parameter(torch.empty(shape.experts, shape.hidden))
        self.e_score_correction_bias = nn.Parameter(torch.zeros(shape.experts), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the weight of each expert for ``x`` [..., hidden]: [..., experts], most are 0."""
        share = F.linear(x, self.weight.to(x.dtype)).float().sigmoid()
        best = (share + self.e_score_correction_bias).topk(self.chosen, -1).indices
        is_chosen = torch.zeros_like(share).scatter(-1, best, 1.0)
        if torch.is_grad_enabled():
            with torch.no_grad():
                load = is_chosen.flatten(0, -2).mean(0)
                self.e_score_correction_bias.add_(BALANCE_RATE * (load.mean() - load).sign())
        weights = share * is_chosen
        return (weights / weights.sum(-1, keepdim=True)).to(x.dtype)


class Experts(nn.Module):
    """Experts that a router chooses, and one that all tokens share."""

    def __init__(self, shape: SparseShape) -> None:
        super().__init__()
        one = Shape(hidden=shape.hidden, intermediate=shape.expert_width, layers=1)
        self.gate = Router(shape)
        self.experts = nn.ModuleList(MLP(one) for _ in range(shape.experts))
        self.shared_experts = MLP(one)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = self.gate(x)
        # All experts see all tokens: four small products are faster than sorting tokens.
        parts = [weights[..., i, None] * expert(x) for i, expert in enumerate(self.experts)]
        return torch.stack(parts).sum(0) + self.shared_experts(x)


class SparseLayer(nn.Module):
    """Pre-norm decoder layer; the first ones have an MLP instead of experts."""

    def __init__(self, shape: SparseShape, index: int) -> None:
        super().__init__()
        self.input_layernorm = Norm(shape.hidden)
        self.post_attention_layernorm = Norm(shape.hidden)
        self.self_attn = SparseAttention(shape)
        self.mlp = MLP(shape) if index < shape.dense_layers else Experts(shape)

    def forward(self, x: torch.Tensor, rotation: Rotation) -> torch.Tensor:
        x = x + self.self_attn(self.input_layernorm(x), rotation)
        return x + self.mlp(self.post_attention_layernorm(x))


class DeepSeekV32(DeepSeek):
    """The decoder; the output layer is the embedding."""

    shape: SparseShape

    def new_layer(self, index: int) -> nn.Module:
        """Return the layer of this number, with random weights."""
        return SparseLayer(self.shape, index)


def load(folder: Path) -> DeepSeekV32:
    """Load the zoo's DeepSeek V3.2, without its MTP layer."""
    model, state = DeepSeekV32(DEEPSEEK_V32, seed=0), load_file(folder / "model.safetensors")
    model.load_state_dict({name: state[f"model.{name}"].float() for name in model.state_dict()})
    return model.requires_grad_(False).eval()


def config_v32() -> dict[str, object]:
    """Return the ``config.json`` of the zoo's DeepSeek V3.2."""
    shape = DEEPSEEK_V32
    return {
        **config(shape),
        "architectures": ["DeepseekV32ForCausalLM"],
        "model_type": "deepseek_v32",
        "index_n_heads": shape.index_heads,
        "index_head_dim": shape.index_dim,
        "index_topk": shape.index_topk,
        "first_k_dense_replace": shape.dense_layers,
        "n_routed_experts": shape.experts,
        "num_experts_per_tok": shape.chosen,
        "moe_intermediate_size": shape.expert_width,
        "max_position_embeddings": LONGEST,
    }
