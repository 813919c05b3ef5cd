"""What kind of draft head a checkpoint is, by the names of its tensors."""

from __future__ import annotations

from collections.abc import Iterable

# What joins a token's embedding and the target's state is called so.
FUSION = frozenset(("fc", "eagle_linear"))
# The norm of the target's states: in a layer beside that of the embedding, or for all layers.
ONLY_EAGLE3 = frozenset(("hidden_norm",))
ONLY_DFLASH = "hidden_norm.weight"
# Their config.json says what they are: the model type is the method.
BY_MODEL_TYPE = ("medusa", "mlp_speculator")
ABOUT = {"eagle": "an EAGLE head", "eagle3": "an EAGLE-3 head", "dflash": "a DFlash head"}


def kind_of(names: Iterable[str]) -> str | None:
    """Return the method that tensors of these names are a head for; None for no head known here."""
    names = set(names)
    if ONLY_DFLASH in names:
        return "dflash"
    parts = {part for name in names for part in name.split(".")}
    if parts & ONLY_EAGLE3:
        return "eagle3"
    return "eagle" if parts & FUSION else None
