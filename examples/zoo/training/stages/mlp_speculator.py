"""The MLP speculator, by distillation of the target's distribution at each token ahead."""

from __future__ import annotations

from pathlib import Path

from .. import export
from ..ahead import Distillation, evaluate, fit_heads
from ..loop import Recipe, finish
from ..mlp_heads import MlpHeads
from ..shapes import MLP_SPECULATOR_INNER, TARGET, VOCAB_SIZE

RECIPE = Recipe(steps=600, batch_size=4, length=256, learning_rate=4e-3, seed=13, warmup=50)
STAGES = 3
CONFIG = {
    "architectures": ["MLPSpeculatorPreTrainedModel"],
    "model_type": "mlp_speculator",
    "vocab_size": VOCAB_SIZE,
    "emb_dim": TARGET.hidden,
    "inner_dim": MLP_SPECULATOR_INNER,
    "n_predict": STAGES,
    "top_k_tokens_per_head": [1] * STAGES,
    "n_candidates": 1,
    "tie_weights": True,
    "scale_input": True,
    "dtype": "bfloat16",
}


def train(work: Path, out: Path, recipe: Recipe) -> None:
    """Train three stages with one set of weights."""
    target = export.load_target(out / "target")
    heads = MlpHeads(TARGET.hidden, MLP_SPECULATOR_INNER, STAGES, 12)
    loss = Distillation(target.embed_tokens.weight, heads, STAGES)
    record = fit_heads("mlp_speculator", target, loss, heads, work, recipe)
    export.save_weights(out / "mlp_speculator", CONFIG, heads.state_of_ibm())
    finish("mlp_speculator", record, lambda: evaluate(target, loss, work, recipe), out)
