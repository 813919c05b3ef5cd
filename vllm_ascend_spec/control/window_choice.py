"""Choose the window of a draft's attention by measured acceptance.

Windows are compared on requests that are longer than the smallest one. They are tried in turn, one
in each step, so that all of them meet the same requests; then the best is kept for a while. Only
counts are used, as in ``acceptance.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

from vllm_ascend_spec.control.acceptance import RecentAcceptance

# Observations of each window in a trial, and of the best one until the next trial: if each
# alternative costs a token per observation, trials of two of them cost 6% of the tokens.
TRIAL, HOLD = 64, 2048
# Observations that count: those of some trials.
RECENT = 256
# Tokens per step that a window has to gain before it replaces the whole text or another window.
GAIN = 0.05


class WindowChoice:
    """Chooses between the whole text (None) and some windows.

    Args:
        sizes: windows to choose from, in tokens, ascending; at least one.
        max_k: the most drafts of a request.

    Attributes:
        window: the best window so far, in tokens; None for the whole text.
        sizes: as given.
    """

    def __init__(self, sizes: Sequence[int], max_k: int) -> None:
        self.window: int | None = None
        self.sizes = tuple(sizes)
        self._max_k = max_k
        self._acceptance: dict[int | None, RecentAcceptance] = {
            size: RecentAcceptance(max_k, RECENT) for size in (None, *sizes)
        }
        self._missing = dict.fromkeys(self._acceptance, TRIAL)
        self._held = 0
        self._turn = 0

    @property
    def is_trying(self) -> bool:
        """Whether windows are being compared."""
        return any(missing > 0 for missing in self._missing.values())

    def next_window(self) -> int | None:
        """Return the window of the step that is being scheduled."""
        tried = [size for size, missing in self._missing.items() if missing > 0]
        if not tried:
            return self.window
        self._turn += 1
        return tried[self._turn % len(tried)]

    def note(self, window: int | None, drafts: int, accepted: int) -> bool:
        """Record the drafts of a request that is longer than the smallest window.

        Args:
            window: the window that the drafts were made with.
            drafts: number of verified drafts, at least 1.
            accepted: number of accepted ones.

        Returns:
            Whether another window is the best now.
        """
        self._acceptance[window].note(drafts, accepted)
        if self.is_trying:
            self._missing[window] -= 1
            return not self.is_trying and self._choose()
        self._held += 1
        if self._held >= HOLD:
            self._missing, self._held = dict.fromkeys(self._missing, TRIAL), 0
        return False

    def tokens(self, window: int | None) -> float:
        """Return how many tokens a step with all drafts is expected to yield with a window."""
        return self._acceptance[window].tokens(self._max_k)

    def _choose(self) -> bool:
        before = self.window
        best = max(self._acceptance, key=self.tokens)
        if self.tokens(best) > self.tokens(before) + GAIN:
            self.window = best
        return self.window != before
