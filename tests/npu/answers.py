"""Are two greedy answers the same, but for a choice between tokens that rounding cannot tell apart?

Ascend's attention takes float16 and bfloat16 alone. There a forward pass over K+1 rows rounds
differently from one over one row, and where the two best tokens are as close as that, greedy
decoding takes another turn; everything after it is another text (docs/losslessness.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# Nats between two tokens that bfloat16 may order either way. On a CPU all turns were within 0.016;
# an NPU's matrix unit adds in another order still.
TIE = 0.1


@dataclass(frozen=True)
class Comparison:
    """How far an answer is the expected one.

    Attributes:
        same: tokens before the first that differs.
        gap: how much likelier the expected token was there, in nats; None if nothing differs,
            infinite if the token was not among the most likely.
    """

    same: int
    gap: float | None

    @property
    def is_right(self) -> bool:
        """Whether the answers are equal, or part at a tie."""
        return self.gap is None or self.gap <= TIE


def compare(actual: dict[str, Any], expected: dict[str, Any]) -> Comparison:
    """Compare two answers as tests/ascend/engine.py returns them.

    Args:
        actual: of an engine with speculation.
        expected: without, with the logprobs of the most likely tokens at each place.
    """
    ours, theirs = actual["tokens"], expected["tokens"]
    for place, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        if a != b:
            argmax = expected["logprobs"][place]
            gap = argmax[str(b)] - argmax.get(str(a), float("-inf"))
            return Comparison(place, gap)
    length_differs = len(ours) != len(theirs)
    return Comparison(min(len(ours), len(theirs)), float("inf") if length_differs else None)
