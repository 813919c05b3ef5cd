"""What requests go on from: long and short, so that none of a batch can pass for another.

Batches of prompts of one length hid it when the KV lengths of a draft's later steps were reversed.
"""

from __future__ import annotations

import json

from tests.zoo import ZOO

# Which of the zoo's texts, of about 90 tokens, begin a prompt, and its characters: about 60, 400,
# 5, 250, 120 and 375 tokens. The last three grow into another block of the KV cache (128 tokens).
MIXED = ((0, 208), (7, 1200), (21, 16), (14, 896), (28, 368), (35, 1216))
# Those after them are of about 10 to 50 tokens.
SHORT = range(40, 58)
NUM_PROMPTS = len(MIXED)


def prompts(count: int = NUM_PROMPTS) -> list[str]:
    """Return that many prompts, always the same; most are 24."""
    texts: list[str] = json.loads((ZOO / "prompts.json").read_text())
    mixed = ["\n".join(texts[first : first + 7])[:length] for first, length in MIXED]
    short = [texts[place][: 40 + 7 * (place - SHORT.start)] for place in SHORT]
    return [*mixed, *short][:count]
