"""What a DSpark head drafts after a text, in plain PyTorch and in one piece, without a KV cache."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

Weights = dict[str, torch.Tensor]


def norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Return ``x`` over its root mean square, times ``weight``."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def turned(x: torch.Tensor, positions: torch.Tensor, theta: float) -> torch.Tensor:
    """Return heads [rows, heads, head_dim] with rotary embeddings of their positions."""
    half = x.shape[-1] // 2
    angles = positions[:, None, None] * theta ** -(torch.arange(half) / half)
    first, second = x[..., :half], x[..., half:]
    turned_first = first * angles.cos() - second * angles.sin()
    return torch.cat([turned_first, second * angles.cos() + first * angles.sin()], -1)


class Reference:
    """A head beside its target.

    Args:
        target: folder of the target.
        head: folder of the head.
    """

    def __init__(self, target: str, head: str) -> None:
        self.config: dict[str, Any] = json.loads((Path(head) / "config.json").read_text())
        weights = load_file(Path(head) / "model.safetensors")
        self.weights: Weights = {name: tensor.float() for name, tensor in weights.items()}
        self.target = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32).eval()

    @torch.no_grad()
    def states(self, text: Sequence[int]) -> torch.Tensor:
        """Return what comes out of the layers that the head reads, [tokens, states * hidden]."""
        seen: dict[int, torch.Tensor] = {}
        layers = self.target.model.layers
        hooks = [
            layers[layer].register_forward_hook(
                lambda _module, _args, out, layer=layer: seen.update(
                    {layer: out[0] if isinstance(out, tuple) else out}
                )
            )
            for layer in self.config["target_layer_ids"]
        ]
        self.target(torch.tensor([list(text)]))
        for hook in hooks:
            hook.remove()
        states = [seen[layer] for layer in self.config["target_layer_ids"]]
        return torch.cat([state.view(len(text), -1) for state in states], -1)

    def attend(self, number: int, x: torch.Tensor, text: torch.Tensor, start: int) -> torch.Tensor:
        """Return what a layer's attention adds to a block: each row sees the text and all rows."""
        config, size = self.config, self.config["head_dim"]
        own = self._of(f"layers.{number}.self_attn.")
        groups = config["num_attention_heads"] // config["num_key_value_heads"]
        eps, theta = config["rms_norm_eps"], config["rope_theta"]

        def heads(rows: torch.Tensor, name: str) -> torch.Tensor:
            return F.linear(rows, own[f"{name}_proj.weight"]).view(len(rows), -1, size)

        positions = torch.arange(start, start + len(x)).float()
        everywhere, both = torch.arange(start + len(x)).float(), torch.cat([text, x])
        queries = turned(norm(heads(x, "q"), own["q_norm.weight"], eps), positions, theta)
        keys = turned(norm(heads(both, "k"), own["k_norm.weight"], eps), everywhere, theta)
        keys, values = (part.repeat_interleave(groups, 1) for part in (keys, heads(both, "v")))
        scores = torch.einsum("qhd,khd->hqk", queries, keys) / size**0.5
        mixed = torch.einsum("hqk,khd->qhd", scores.softmax(-1), values)
        return F.linear(mixed.flatten(1), own["o_proj.weight"])

    def _of(self, start: str) -> Weights:
        named = self.weights.items()
        return {name.removeprefix(start): w for name, w in named if name.startswith(start)}

    @torch.no_grad()
    def drafts(self, text: Sequence[int], k: int) -> list[int]:
        """Return the greedy drafts after a text, whose last token begins the block."""
        config, weights, eps = self.config, self.weights, self.config["rms_norm_eps"]
        embed = self.target.get_input_embeddings().weight
        start, skipped = len(text) - 1, 0 if config["sample_from_anchor"] else 1
        masks = [config["mask_token_id"]] * (k - 1 + skipped)
        context = F.linear(self.states(text)[:start], weights["fc.weight"])
        context = norm(context, weights["hidden_norm.weight"], eps)
        x = embed[torch.tensor([text[-1], *masks])]
        for number in range(config["num_hidden_layers"]):
            part = self._of(f"layers.{number}.")
            x = x + self.attend(
                number, norm(x, part["input_layernorm.weight"], eps), context, start
            )
            normed = norm(x, part["post_attention_layernorm.weight"], eps)
            gate = F.silu(F.linear(normed, part["mlp.gate_proj.weight"]))
            up = F.linear(normed, part["mlp.up_proj.weight"])
            x = x + F.linear(gate * up, part["mlp.down_proj.weight"])
        logits = F.linear(norm(x, weights["norm.weight"], eps), embed)[skipped:]
        before, found = text[-1], []
        for row in logits:
            embedded = weights["markov_head.markov_w1.weight"][before]
            before = int((row + weights["markov_head.markov_w2.weight"] @ embedded).argmax())
            found.append(before)
        return found
