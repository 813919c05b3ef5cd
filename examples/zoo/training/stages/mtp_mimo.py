"""A MiMo with one MTP layer: the zoo's target as it is, and the layer by distillation."""

from __future__ import annotations

from pathlib import Path

import torch

from .. import export
from ..llama import Attention, Llama, rotary_table
from ..loop import Recipe, record_curve
from ..mtp_fit import fit_layer
from ..mtp_layer import MtpLayer
from ..shapes import TARGET

RECIPE = Recipe(
    steps=600,
    batch_size=8,
    length=256,
    learning_rate=2e-3,
    seed=21,
    warmup=30,
    muon_learning_rate=4e-3,
)
NAMES = {
    "embedding_norm": "token_layernorm",
    "state_norm": "hidden_layernorm",
    "fuse": "input_proj",
    "norm": "final_layernorm",
}
SETTINGS = {
    "architectures": ["MiMoForCausalLM"],
    # transformers has no MiMo, and reads text with another tokenizer for a Qwen2.
    "model_type": "llama",
    "num_nextn_predict_layers": 1,
}


class MimoTarget(Llama):
    """The target; MiMo hands its last states on before the last norm."""

    def states(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the states that the layer reads, and the normed ones."""
        normed, (read,) = self.with_states(tokens, (self.shape.layers,))
        return read, normed


def train(work: Path, out: Path, recipe: Recipe) -> None:
    """Train the layer, and write the target with it."""
    target = MimoTarget(TARGET, seed=0)
    target.load_state_dict(export.load_target(out / "target").state_dict())
    target.requires_grad_(False)
    layer = MtpLayer(TARGET, Attention(TARGET), target.norm.weight, seed=20)
    rotation = rotary_table(recipe.length - 1, TARGET.head_dim)
    record = fit_layer("mtp_mimo", layer, target, rotation, work, recipe)
    state = {f"model.{k}": v for k, v in target.state_dict().items()}
    state |= {f"model.mtp_layers.0.{k}": v for k, v in names_of_mimo(layer).items()}
    state |= zero_biases(state)
    export.save(out / "target-mimo", work / "tokenizer", TARGET, state, **SETTINGS)
    record_curve("mtp_mimo", record, out)


def names_of_mimo(layer: MtpLayer) -> dict[str, torch.Tensor]:
    """Return the layer's weights under MiMo's names; MiMo has the state before the embedding."""
    state = {}
    for name, value in layer.state_dict().items():
        module, _, rest = name.partition(".")
        state[f"{NAMES.get(module, module)}.{rest}"] = value
    embedding, hidden = state["input_proj.weight"].chunk(2, dim=1)
    return state | {"input_proj.weight": torch.cat([hidden, embedding], 1)}


def zero_biases(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the biases of q, k and v, which a Llama does not have and a Qwen2 has."""
    ends = tuple(f"{part}_proj.weight" for part in "qkv")
    return {
        f"{name.removesuffix('weight')}bias": torch.zeros(len(value))
        for name, value in state.items()
        if name.endswith(ends)
    }
