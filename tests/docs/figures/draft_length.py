"""``benchmarks adaptive``: a row for each load of ``auto``, eager and compiled side by side."""

from __future__ import annotations

from collections.abc import Iterator

from tests.docs.figures.rows import read, row


def rows() -> Iterator[str]:
    """Yield the rows."""
    eager, compiled = read("auto-cpu-eager"), read("auto-cpu-compiled")
    for part in ("cells", "alternating"):
        for load, cell in eager[part].items():
            found = [
                mode[ratio]["median"]
                for mode in (cell, compiled[part][load])
                for ratio in ("to_none", "to_best_fixed")
            ]
            yield row(load.replace(", plain", ""), *(f"{ratio:.2f}" for ratio in found))
