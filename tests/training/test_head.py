"""What the config of a trained head tells vLLM."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

pytestmark = pytest.mark.skipif(find_spec("speculators") is None, reason="needs speculators")
FULL, WINDOW = "full_attention", "sliding_attention"


@pytest.mark.parametrize(
    ("layers", "causal"), [([FULL, FULL], False), ([WINDOW, FULL], True)], ids=["full", "windows"]
)
def test_dflash_layers_see_what_they_saw_in_training(
    layers: list[str], causal: bool, tmp_path: Path
) -> None:
    from speculators.models.dflash.config import DFlashSpeculatorConfig
    from vllm.transformers_utils.configs.speculators.algos import update_dflash

    from vllm_ascend_spec.training.library.head import write_head

    checkpoint, head = tmp_path / "checkpoint", tmp_path / "head"
    checkpoint.mkdir()
    save_file({"fc.weight": torch.zeros(1)}, checkpoint / "model.safetensors")
    library = DFlashSpeculatorConfig(
        aux_hidden_state_layer_ids=[1, 2], mask_token_id=0, draft_vocab_size=8
    ).to_dict()
    library["transformer_layer_config"]["layer_types"] = layers
    (checkpoint / "config.json").write_text(json.dumps(library, default=str))
    write_head(checkpoint, head, torch.float32)
    read: dict[str, Any] = {}
    update_dflash(json.loads((head / "config.json").read_text()), read)
    assert read["dflash_config"]["causal"] is causal
