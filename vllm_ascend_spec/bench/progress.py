"""Show the progress of a long command: a line rewritten in place on a terminal, else nothing."""

from __future__ import annotations

import sys

from tqdm import tqdm


class Progress(tqdm):
    """The progress line; use it as a context manager. It disappears at the end.

    Args:
        total: number of steps; None if unknown.
    """

    # tqdm's monitor thread would disturb measurements.
    monitor_interval = 0

    def __init__(self, total: int | None = None) -> None:
        steps = "" if total is None else " {n_fmt}/{total_fmt}"
        left = "" if total is None else "<{remaining}"
        super().__init__(
            total=total,
            # For tqdm, None means: silent unless stderr is a terminal.
            disable=None,
            leave=False,
            dynamic_ncols=True,
            bar_format=f"{{desc}}{steps} [{{elapsed}}{left}]",
        )
        self._has_begun = False

    def next(self, text: str) -> None:
        """Show which step begins, and count the previous one, if any, as done."""
        self.set_description_str(text, refresh=False)
        if self._has_begun:
            self.update()
        self._has_begun = True
        self.refresh()


def tell(text: str, *, to_stderr: bool = False) -> None:
    """Print a result above the progress line, if there is one.

    Args:
        text: one line or several.
        to_stderr: whether to print to stderr, because the record goes to stdout.
    """
    tqdm.write(text, file=sys.stderr if to_stderr else sys.stdout)
