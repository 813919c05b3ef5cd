"""A Gemma 4 by next-token prediction, then the assistant that drafts for it by distillation."""

from __future__ import annotations

from pathlib import Path

from .. import export
from ..assistant_fit import fit_assistant
from ..gemma4 import Assistant, Gemma4, assistant_config, config
from ..loop import Recipe, record_curve
from ..mtp_fit import fit_target, round_as_saved

# Of the target; the assistant has ASSISTANT_SHARE of the steps.
RECIPE = Recipe(
    steps=500,
    batch_size=6,
    length=256,
    learning_rate=2e-3,
    seed=71,
    warmup=30,
    muon_learning_rate=4e-3,
)
ASSISTANT_SHARE = 0.8


def train(work: Path, out: Path, recipe: Recipe) -> None:
    """Train the target, then the assistant, and write both."""
    target = Gemma4(seed=70)
    # The zoo's target has learnt these on the same text.
    target.embed_tokens.load_state_dict(
        export.load_target(out / "target").embed_tokens.state_dict()
    )
    record = fit_target("target_gemma4", target, target.model.layers, work, recipe)
    round_as_saved(target)
    state = {f"model.{name}": value for name, value in target.model.state_dict().items()}
    folder = out / "target-gemma4"
    export.save_weights(folder, config(), state)
    export.copy_tokenizer(work / "tokenizer", folder)
    record_curve("target_gemma4", record, out)

    assistant = Assistant(target, seed=72)
    rest = recipe.scaled(ASSISTANT_SHARE)
    record = fit_assistant("mtp_gemma4", assistant, target, work, rest)
    folder = out / "mtp-gemma4"
    export.save_weights(folder, assistant_config(), assistant.weights())
    export.copy_tokenizer(work / "tokenizer", folder)
    record_curve("mtp_gemma4", record, out)
