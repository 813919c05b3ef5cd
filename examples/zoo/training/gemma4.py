"""Gemma 4: windows and full attention with heads of two sizes, and its assistant, which drafts.

The assistant (``gemma4_assistant``) has no keys and values of its own: its layers attend to those
of the target's last layer of the same kind. All its draft steps are at one position, that of the
last token that the target has read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from transformers import Gemma4TextConfig, Gemma4TextModel
from transformers.models.gemma4_assistant import Gemma4AssistantConfig, Gemma4AssistantForCausalLM

from .shapes import (
    END_OF_TEXT_ID,
    GEMMA4,
    GEMMA4_ASSISTANT,
    MAX_POSITIONS,
    ROPE_THETA,
    VOCAB_SIZE,
    Shape,
)

# Prompts of the tests are longer, so layers with a window do forget.
WINDOW = 64
# Of layers with full attention; Gemma 4's own are twice as wide as those with a window, too.
FULL_HEAD_DIM = 128
NORM_EPS = 1e-6
SLIDING, FULL = "sliding_attention", "full_attention"


def config() -> dict[str, Any]:
    """Return the ``config.json`` of the zoo's Gemma 4, which reads text alone."""
    return {"architectures": ["Gemma4ForCausalLM"], **text_config(GEMMA4)}


def assistant_config() -> dict[str, Any]:
    """Return the ``config.json`` of its assistant."""
    return {
        "architectures": ["Gemma4AssistantForCausalLM"],
        "model_type": "gemma4_assistant",
        "backbone_hidden_size": GEMMA4.hidden,
        "use_ordered_embeddings": False,
        "tie_word_embeddings": True,
        "text_config": {
            **text_config(GEMMA4_ASSISTANT),
            "num_kv_shared_layers": GEMMA4_ASSISTANT.layers,
        },
        "bos_token_id": END_OF_TEXT_ID,
        "eos_token_id": END_OF_TEXT_ID,
        "pad_token_id": END_OF_TEXT_ID,
        "dtype": "bfloat16",
    }


def text_config(shape: Shape) -> dict[str, Any]:
    """Return what the configs of both have in common: only the last layer has full attention."""
    return {
        "model_type": "gemma4_text",
        "vocab_size": VOCAB_SIZE,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "layer_types": [SLIDING] * (shape.layers - 1) + [FULL],
        "sliding_window": WINDOW,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "global_head_dim": FULL_HEAD_DIM,
        "num_kv_shared_layers": 0,
        # No embeddings of each layer's own.
        "hidden_size_per_layer_input": 0,
        "vocab_size_per_layer_input": 0,
        "max_position_embeddings": MAX_POSITIONS,
        "rms_norm_eps": NORM_EPS,
        "rope_parameters": {
            SLIDING: {"rope_type": "default", "rope_theta": ROPE_THETA},
            FULL: {
                "rope_type": "proportional",
                "rope_theta": 100 * ROPE_THETA,
                "partial_rotary_factor": 0.25,
            },
        },
        "hidden_activation": "gelu_pytorch_tanh",
        "tie_word_embeddings": True,
        "attention_bias": False,
        "bos_token_id": END_OF_TEXT_ID,
        "eos_token_id": END_OF_TEXT_ID,
        "pad_token_id": END_OF_TEXT_ID,
        "dtype": "bfloat16",
    }


class Gemma4(nn.Module):
    """The decoder with tied embeddings.

    Args:
        seed: of the weights.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.model = Gemma4TextModel(Gemma4TextConfig(**_settings(config()))).float()
        scale_queries(self.model)

    @property
    def embed_tokens(self) -> nn.Embedding:
        """The embeddings, which are the output layer, too."""
        return self.model.embed_tokens

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the normed hidden states [batch, length, hidden] of ``tokens``."""
        return self.model(input_ids=tokens, use_cache=False).last_hidden_state

    def with_keys(self, tokens: torch.Tensor) -> tuple[torch.Tensor, dict[str, Any]]:
        """Return the normed states of ``tokens`` [batch, length], and the keys and values.

        Returns:
            States [batch, length, hidden]; a pair [batch, kv_heads, length, head_dim] for each kind
            of layer, of the last one of that kind.
        """
        found = self.model(input_ids=tokens, use_cache=False, return_shared_kv_states=True)
        return found.last_hidden_state, dict(found.shared_kv_states)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return logits [..., VOCAB_SIZE] of ``hidden`` [..., hidden]."""
        return F.linear(hidden, self.embed_tokens.weight)


class Assistant(nn.Module):
    """The drafter; it starts from what it can say of the target's states.

    Args:
        target: whose embeddings span the space that its output layer starts from.
        seed: of the other weights.
    """

    def __init__(self, target: Gemma4, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        settings = Gemma4AssistantConfig(**_settings(assistant_config()))
        self.whole = Gemma4AssistantForCausalLM(settings).float()
        scale_queries(self.whole.model)
        embeddings = target.embed_tokens.weight.detach()
        # The directions in which the target's embeddings differ most, and the way back from them.
        best = torch.linalg.eigh(embeddings.T @ embeddings)[1][:, -GEMMA4_ASSISTANT.hidden :]
        with torch.no_grad():
            self.whole.lm_head.weight.copy_(embeddings @ best)
            self.whole.post_projection.weight.copy_(best)

    def step(
        self,
        embeddings: torch.Tensor,  # [batch, length, hidden of the target]
        states: torch.Tensor,  # the same
        keys: Mapping[str, Any],
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run one draft step at every position.

        Args:
            embeddings: of the token that each position continues with, scaled.
            states: the target's at each position; of later steps what the step before returned.
            keys: as :meth:`Gemma4.with_keys` returns them, [batch, kv_heads, length, head_dim].

        Returns:
            Logits [batch, length, VOCAB_SIZE], and states for the next step.
        """
        both = self.whole.pre_projection(torch.cat([embeddings, states], -1))
        # Without a mask the decoder makes causal ones: a position attends to those before it.
        found = self.whole.model(
            inputs_embeds=both,
            shared_kv_states=dict(keys),
            use_cache=False,
            # Else transformers cuts embeddings of each layer's own, which are not there.
            output_hidden_states=True,
        )
        hidden = found.last_hidden_state
        return self.whole.lm_head(hidden), self.whole.post_projection(hidden)

    def weights(self) -> dict[str, torch.Tensor]:
        """Return the weights under their names in published checkpoints."""
        state = self.whole.state_dict()
        return {name: value for name, value in state.items() if name != "lm_head.weight"}


def scale_queries(model: Gemma4TextModel) -> None:
    """Start from attention that is scaled as usual; Gemma 4 learns the scale with the norms."""
    for layer in model.layers:
        attention = layer.self_attn
        nn.init.constant_(attention.q_norm.weight, attention.head_dim**-0.5)


def _settings(whole: dict[str, Any]) -> dict[str, Any]:
    named = ("architectures", "model_type")
    return {
        **{name: value for name, value in whole.items() if name not in named},
        "attn_implementation": "eager",
    }
