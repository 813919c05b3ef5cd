"""What kind of draft head a checkpoint is, by the names of its tensors."""

from __future__ import annotations

from collections.abc import Iterable

# What joins a token's embedding and the target's state is called so.
FUSION = frozenset(("fc", "eagle_linear"))
# The norm of the target's states, beside that of the embedding.
ONLY_EAGLE3 = frozenset(("hidden_norm",))


def kind_of(names: Iterable[str]) -> str | None:
    """Return the method that tensors of these names are a head for; None for no head known here."""
    parts = {part for name in names for part in name.split(".")}
    if parts & ONLY_EAGLE3:
        return "eagle3"
    return "eagle" if parts & FUSION else None
