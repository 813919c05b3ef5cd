"""A decoder with experts as transformers has it, for training: its states, its routers' balance.

The experts are computed all for every token, and those that a token did not choose weigh nothing:
for a few small ones one product is faster than a loop over them, and the result is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

EVERY_EXPERT = "every_expert"


class Mixture(nn.Module):
    """The decoder with tied embeddings.

    Args:
        config: of the decoder, with ``num_experts`` and ``num_experts_per_tok``.
        kind: transformers' class of the decoder, without an output layer.
        router: name of a layer's router in its ``mlp``.
        seed: of the weights.
    """

    def __init__(
        self, config: PreTrainedConfig, kind: type[PreTrainedModel], *, router: str, seed: int
    ) -> None:
        super().__init__()
        torch.manual_seed(seed)
        config._experts_implementation = EVERY_EXPERT
        config._attn_implementation = "eager"
        self.num_experts, self.chosen = config.num_experts, config.num_experts_per_tok
        self.model = kind(config).float()
        # Heads read the states behind the last layer before they are normed.
        self.norm, self.model.norm = self.model.norm, nn.Identity()
        self._router_logits: list[torch.Tensor] = []
        for layer in self.model.layers:
            layer.mlp.get_submodule(router).register_forward_hook(self._keep_logits)

    def _keep_logits(self, router: nn.Module, inputs: Any, outputs: tuple[torch.Tensor]) -> None:
        self._router_logits.append(outputs[0])

    @property
    def embed_tokens(self) -> nn.Embedding:
        """The embeddings, which are the output layer, too."""
        return self.model.embed_tokens

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the normed hidden states [batch, length, hidden] of ``tokens``."""
        return self.with_states(tokens, ())[0]

    def with_states(
        self, tokens: torch.Tensor, layers: Sequence[int]
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Return the normed states of ``tokens`` [batch, length], and those behind ``layers``."""
        self._router_logits.clear()
        found = self.model(input_ids=tokens, use_cache=False, output_hidden_states=True)
        return self.norm(found.last_hidden_state), [found.hidden_states[i] for i in layers]

    def balanced(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the normed states of ``tokens`` [batch, length], and the routers' loss."""
        hidden = self(tokens)
        losses = [balance(logits, self.chosen) for logits in self._router_logits]
        return hidden, torch.stack(losses).mean()

    @torch.no_grad()
    def shares(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return what each expert has of the choices, [layers, experts], for ``tokens``."""
        self(tokens)
        return torch.stack([choices(each, self.chosen).mean(0) for each in self._router_logits])

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return logits [..., vocab_size] of ``hidden`` [..., hidden]."""
        return F.linear(hidden, self.embed_tokens.weight)

    def weights(self) -> dict[str, torch.Tensor]:
        """Return the weights under transformers' names."""
        state = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        return state | {"model.norm.weight": self.norm.weight}


def choices(
    logits: torch.Tensor,  # [tokens, experts]
    chosen: int,
) -> torch.Tensor:
    """Return each token's choices as shares [tokens, experts] of one."""
    best = logits.topk(chosen, -1).indices
    return F.one_hot(best, logits.shape[-1]).sum(1).float() / chosen


def balance(
    logits: torch.Tensor,  # [tokens, experts]
    chosen: int,
) -> torch.Tensor:
    """Return the loss of Switch Transformers (2101.03961): 1 where all experts have as much."""
    share = choices(logits, chosen).mean(0)
    return logits.shape[-1] * (share * logits.float().softmax(-1).mean(0)).sum()


def every_expert(
    experts: Any,
    hidden: torch.Tensor,  # [tokens, hidden]
    chosen: torch.Tensor,  # [tokens, chosen]
    weights: torch.Tensor,  # [tokens, chosen]
) -> torch.Tensor:
    """Return the weighted sum [tokens, hidden] of what the chosen experts give."""
    share = hidden.new_zeros(len(hidden), experts.num_experts).scatter(
        1, chosen, weights.to(hidden.dtype)
    )
    into, out = experts.gate_up_proj, experts.down_proj
    if not experts.is_transposed:
        into, out = into.mT, out.mT
    both = torch.einsum("th,ehi->tei", hidden, into)
    if experts.has_bias:
        both = both + experts.gate_up_proj_bias
    inner = experts._apply_gate(both) * share.unsqueeze(-1)
    mixed = torch.einsum("tei,eih->th", inner, out)
    return mixed + share @ experts.down_proj_bias if experts.has_bias else mixed


ALL_EXPERTS_FUNCTIONS.register(EVERY_EXPERT, every_expert)
