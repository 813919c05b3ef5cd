"""Gemma 4 with its assistant, which attends to the target's keys and values."""

from __future__ import annotations

from typing import Any

from tests.ascend.matrix import MODES, Case
from tests.zoo import ASSISTANT, GEMMA4


def of_gemma4(mode: str, /, **settings: Any) -> Case:
    """Return a case of the zoo's Gemma 4.

    Args:
        mode: a key of :data:`MODES`.
        settings: the case's others; ``engine`` is added to.
    """
    engine = {"model": GEMMA4, **settings.pop("engine", {})}
    options = {"model": ASSISTANT["model"]}
    return Case(method="mtp", mode=mode, engine=engine, options=options, **settings)


PIECES = {"max_num_batched_tokens": 48, "max_num_seqs": 4}
ASYNC = {"async_scheduling": True, "enable_prefix_caching": False}
GEMMA4_CASES: dict[str, Case] = {
    f"gemma4-{mode}": of_gemma4(mode, requests=("greedy", "alone", "seeded"), watched=True)
    for mode in MODES
}
GEMMA4_CASES |= {
    "gemma4-pieces": of_gemma4("default", engine=PIECES),
    "gemma4-async": of_gemma4("full_decode_only", engine=ASYNC, requests=("greedy", "crowd")),
    "gemma4-tp2": of_gemma4(
        "full_decode_only", devices=2, requests=("greedy", "crowd"), watched=True
    ),
}
GEMMA4_BY_DAY = ("gemma4-full_decode_only",)
