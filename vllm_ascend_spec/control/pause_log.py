"""Log an adaptive K: once when drafting no longer pays, and once when it pays again."""

from __future__ import annotations

import logging

from vllm_ascend_spec.control.adaptive_k import PAYS, AdaptiveK, KChoice
from vllm_ascend_spec.log import get_logger

logger = get_logger(__name__)


class PauseLog:
    """Logs when drafting pauses and when it goes on.

    Args:
        chooser: makes the choices.
    """

    def __init__(self, chooser: AdaptiveK) -> None:
        self._chooser = chooser
        self.is_paused = False
        # How often drafting was paused.
        self.pauses = 0

    def note(self, choice: KChoice, requests: int) -> None:
        """Log a choice if it pauses drafting or resumes it."""
        if choice.reason != PAYS or (choice.k == 0) == self.is_paused:
            return
        self.is_paused = choice.k == 0
        rate = self._chooser.acceptance.rates()[0]
        if self.is_paused:
            self.pauses += 1
            told = "Drafting pauses: it does not pay"
        else:
            told = f"Drafting goes on with K={choice.k}: it pays"
        logger.log(
            logging.INFO,
            "%s in a batch of %d requests, with %.0f%% of first drafts accepted.",
            told,
            requests,
            100 * rate,
        )
