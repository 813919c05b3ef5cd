"""How far a long command is: one line, rewritten in place on a terminal, silent elsewhere."""

from __future__ import annotations

import sys

from tqdm import tqdm


class Progress(tqdm):
    """The line; use it as a context manager, or loop over it. It is gone at the end.

    Args:
        total: steps that there will be; None where nobody knows.
    """

    # No thread beside what is measured.
    monitor_interval = 0

    def __init__(self, total: int | None = None) -> None:
        steps = "" if total is None else " {n_fmt}/{total_fmt}"
        left = "" if total is None else "<{remaining}"
        super().__init__(
            total=total,
            # tqdm's word for: silent where stderr is no terminal.
            disable=None,
            leave=False,
            dynamic_ncols=True,
            bar_format=f"{{desc}}{steps} [{{elapsed}}{left}]",
        )
        self._has_begun = False

    def next(self, text: str) -> None:
        """Say which step begins; the one before it, if there was any, is done."""
        self.set_description_str(text, refresh=False)
        if self._has_begun:
            self.update()
        self._has_begun = True
        self.refresh()


def tell(text: str, *, to_stderr: bool = False) -> None:
    """Print a result for people, above a line of progress if there is one.

    Args:
        text: one line or several.
        to_stderr: where stdout has the record.
    """
    tqdm.write(text, file=sys.stderr if to_stderr else sys.stdout)
