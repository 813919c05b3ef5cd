"""What each graph mode of vLLM captures, as its dispatcher reads the mode.

``vllm/config/compilation.py:CUDAGraphMode.decode_mode`` and
``vllm/config/compilation.py:CUDAGraphMode.mixed_mode`` are the two halves of a mode.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mode:
    """One value of ``cudagraph_mode``.

    Attributes:
        has_full_decode: whether decode batches replay full graphs, so that a size has to hold
            whole requests.
        has_mixed: whether batches of any other shape, prefill included, are replayed, too.
        has_pieces: whether these replay piecewise graphs, which are split at attention layers.
    """

    has_full_decode: bool
    has_mixed: bool
    has_pieces: bool


# Keyed by vLLM's name; NONE has no graphs and is left out.
MODES = {
    "FULL": Mode(has_full_decode=True, has_mixed=True, has_pieces=False),
    "FULL_DECODE_ONLY": Mode(has_full_decode=True, has_mixed=False, has_pieces=False),
    "FULL_AND_PIECEWISE": Mode(has_full_decode=True, has_mixed=True, has_pieces=True),
    "PIECEWISE": Mode(has_full_decode=False, has_mixed=True, has_pieces=True),
}
