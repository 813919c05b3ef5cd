"""What each of vLLM's modes of graphs records, as its dispatcher reads them.

``vllm/config/compilation.py:CUDAGraphMode.decode_mode`` and
``vllm/config/compilation.py:CUDAGraphMode.mixed_mode`` are the two halves of a mode.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mode:
    """One value of ``cudagraph_mode``.

    Attributes:
        has_full_decode: whether decode batches are replayed whole, so that a size has to be of
            whole requests.
        has_mixed: whether batches of any other shape, prompts among them, are replayed, too.
        has_pieces: whether these are graphs of the pieces between attention layers.
    """

    has_full_decode: bool
    has_mixed: bool
    has_pieces: bool


# By vLLM's name; NONE has no graphs and is not here.
MODES = {
    "FULL": Mode(has_full_decode=True, has_mixed=True, has_pieces=False),
    "FULL_DECODE_ONLY": Mode(has_full_decode=True, has_mixed=False, has_pieces=False),
    "FULL_AND_PIECEWISE": Mode(has_full_decode=True, has_mixed=True, has_pieces=True),
    "PIECEWISE": Mode(has_full_decode=False, has_mixed=True, has_pieces=True),
}
