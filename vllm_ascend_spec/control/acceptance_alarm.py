"""Log once that drafts are hardly accepted any more, and once that they are accepted again."""

from __future__ import annotations

import logging

from vllm_ascend_spec.control.acceptance import RecentAcceptance
from vllm_ascend_spec.log import get_logger

logger = get_logger(__name__)

# Acceptance rates of first drafts at which the alarm is raised and cleared.
ALARM_BELOW, CLEAR_ABOVE = 0.05, 0.15
# Observed first drafts that are needed before anything is logged.
MIN_OBSERVED = 200


class AcceptanceAlarm:
    """Checks the acceptance rate after each step.

    Args:
        acceptance: acceptance over all requests.
        remedy: end of the warning, which says what is or could be done.
    """

    def __init__(self, acceptance: RecentAcceptance, remedy: str) -> None:
        self._acceptance, self._remedy = acceptance, remedy
        self.is_low = False
        # How often acceptance became low.
        self.alarms = 0

    def check(self) -> None:
        """Compare the current rate with the thresholds, and log a change."""
        if self._acceptance.num_observed < MIN_OBSERVED:
            return
        rate = self._acceptance.rates()[0]
        if not self.is_low and rate < ALARM_BELOW:
            self.is_low = True
            self.alarms += 1
            text = "Drafts are hardly accepted: %.1f%% of the latest first drafts. %s"
            logger.log(logging.WARNING, text, 100 * rate, self._remedy)
        elif self.is_low and rate > CLEAR_ABOVE:
            self.is_low = False
            text = "Drafts are accepted again: %.0f%% of the latest first drafts."
            logger.log(logging.INFO, text, 100 * rate)
