"""Hidden states that an engine kept, and those that transformers works out."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from vllm.distributed.kv_transfer.kv_connector.v1.example_hidden_states_connector import (
    load_hidden_states,
)

from tests.zoo import DEPTH, TARGET, WIDTH

# What comes out of none of the target's layers, of one, of two, and of all.
LAYERS = [0, 1, 2, DEPTH]
SPEC: dict[str, Any] = {
    "method": "extract_hidden_states",
    "num_speculative_tokens": 1,
    "draft_model_config": {"hf_config": {"eagle_aux_hidden_state_layer_ids": LAYERS}},
}
# A request may ask for the states of what it answers, too.
WITH_ANSWER = {"kv_transfer_params": {"include_output_tokens": True}}


def keep_in(folder: Path | str) -> dict[str, Any]:
    """Return the ``kv_transfer_config`` that keeps states in a folder."""
    return {
        "kv_connector": "ExampleHiddenStatesConnector",
        "kv_role": "kv_producer",
        "kv_connector_extra_config": {"shared_storage_path": str(folder)},
    }


@functools.cache
def transformers_model() -> Any:
    """Return the target as transformers has it, in float32."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(TARGET, dtype=torch.float32)


@torch.no_grad()
def expected_states(
    tokens: torch.Tensor,  # [num_tokens]
) -> torch.Tensor:
    """Return the states by transformers, [num_tokens, len(LAYERS), hidden_size]."""
    model = transformers_model().model
    found: list[torch.Tensor] = []
    # Its last hidden state is normed; what comes out of the last layer is not.
    hook = model.layers[-1].register_forward_hook(lambda *given: found.append(given[2]))
    states = model(tokens[None], output_hidden_states=True).hidden_states
    hook.remove()
    last = found[0][0] if isinstance(found[0], tuple) else found[0]
    return torch.stack([*(states[i][0] for i in LAYERS[:-1]), last.view(len(tokens), -1)], dim=1)


def check_states(path: str, tokens: Sequence[int]) -> None:
    """A file has the states of exactly these tokens, within the rounding of float32."""
    found = load_hidden_states(path)
    assert found["token_ids"].tolist() == list(tokens)
    states = found["hidden_states"]
    expected = expected_states(torch.tensor(list(tokens)))
    assert states.dtype == torch.float32
    assert states.shape == expected.shape == (len(tokens), len(LAYERS), WIDTH)
    scale = expected.abs().amax(dim=(0, 2), keepdim=True)
    assert ((states - expected).abs() / scale).max() < 1e-5
