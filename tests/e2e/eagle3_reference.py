"""An EAGLE-3 head's drafts, worked out one request at a time in plain PyTorch.

By the paper (2503.01840) and the entries of the head's config, from the weights on disk: nothing of
vLLM's and no KV cache of blocks, slots or graphs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from examples.zoo.training.export import load_target
from examples.zoo.training.llama import rotary_table, rotate
from tests.eagle3 import embeddings, state_of
from tests.zoo import ZOO_TARGET

LONGEST = 512


class Reference:
    """A head of one layer.

    Args:
        folder: its checkpoint, with the names of the zoo's.
    """

    def __init__(self, folder: Path) -> None:
        self.config: dict[str, Any] = json.loads((folder / "config.json").read_text())
        self.state = {name: tensor.float() for name, tensor in state_of(folder).items()}
        self.layers = self.config["eagle_config"]["eagle_aux_hidden_state_layer_ids"]
        self.embedding = self.state.get("embed_tokens.weight", embeddings().float())
        self.head = self.state.get("lm_head.weight", embeddings().float())
        drafts = torch.arange(len(self.head))
        self.targets = drafts + self.state.get("d2t", torch.zeros(1)).long()
        self.target = load_target(Path(ZOO_TARGET))
        self.rotation = rotary_table(LONGEST, self.config["head_dim"])

    def drafts(self, tokens: list[int], count: int) -> list[dict[int, float]]:
        """Return, for each of ``count`` drafts after ``tokens``, the two best and their logits."""
        ids = torch.tensor(tokens)
        _, states = self.target.with_states(ids[None, :-1], self.layers)
        x = self._fused([state[0] for state in states])
        keys, values = torch.zeros(0), torch.zeros(0)
        inputs, found = ids[1:], []
        for step in range(count):
            place = len(tokens) - 2 + step
            first = 0 if step == 0 else place
            x, keys, values = self._layer(x, inputs, first, keys, values)
            normed = self._norm("norm", x)
            best = (normed[-1] @ self.head.T).topk(2)
            own = self.targets[best.indices].tolist()
            found.append(dict(zip(own, best.values.tolist(), strict=True)))
            inputs = torch.tensor(own[:1])
            x = (normed if self.config.get("norm_output") else x)[-1:]
        return found

    def _norm(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, x.shape[-1:], self.state[f"{name}.weight"], 1e-5)

    def _linear(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return x @ self.state[f"{name}.weight"].T

    def _fused(self, states: list[torch.Tensor]) -> torch.Tensor:
        if self.config.get("fc_norm"):
            states = [self._norm(f"fc_norm.{n}", state) for n, state in enumerate(states)]
        return self._linear("fc", torch.cat(states, -1))

    def _layer(
        self,
        x: torch.Tensor,  # [num_rows, hidden_size]
        inputs: torch.Tensor,  # [num_rows]
        first: int,
        keys: torch.Tensor,  # [num_heads, num_known, head_dim]
        values: torch.Tensor,  # [num_heads, num_known, head_dim]
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Run the layer on rows from position ``first`` on, behind those that are known."""
        states = self._norm("midlayer.hidden_norm", x)
        read = [self._norm("midlayer.input_layernorm", self.embedding[inputs]), states]
        x = states if self.config.get("norm_before_residual") else x
        q, k, v = (self._heads(name, torch.cat(read, -1)) for name in "qkv")
        rotation = tuple(part[first : first + len(inputs)] for part in self.rotation)
        q, k = rotate(q, rotation), rotate(k, rotation)  # type: ignore[arg-type]
        keys = torch.cat([keys, k], 1) if keys.numel() else k
        values = torch.cat([values, v], 1) if values.numel() else v
        groups = q.shape[0] // k.shape[0]
        wide = [known.repeat_interleave(groups, 0) for known in (keys, values)]
        mixed = F.scaled_dot_product_attention(q, *wide, is_causal=len(inputs) > 1)
        x = x + self._linear("midlayer.self_attn.o_proj", mixed.transpose(0, 1).flatten(1))
        up = self._norm("midlayer.post_attention_layernorm", x)
        gate = F.silu(self._linear("midlayer.mlp.gate_proj", up))
        up = gate * self._linear("midlayer.mlp.up_proj", up)
        return x + self._linear("midlayer.mlp.down_proj", up), keys, values

    def _heads(self, name: str, x: torch.Tensor) -> torch.Tensor:
        rows = self._linear(f"midlayer.self_attn.{name}_proj", x)
        return rows.view(len(x), -1, self.config["head_dim"]).transpose(0, 1)
