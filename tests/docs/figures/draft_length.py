"""``benchmarks adaptive``: a row for each load, eager and compiled side by side."""

from __future__ import annotations

from collections.abc import Iterator

from tests.docs.figures.rows import Record, read, row


def rows(kind: str) -> Iterator[str]:
    """Yield the rows.

    Args:
        kind: what was compared with a fixed K, ``"auto"`` or ``"adaptive"``.
    """
    eager, compiled = read(f"{kind}-cpu-eager"), read(f"{kind}-cpu-compiled")
    for part in ("cells", "alternating"):
        for load, cell in eager[part].items():
            columns = [*shown(cell), *shown(compiled[part][load])]
            yield row(load.replace(", plain", ""), *columns)


def shown(cell: Record) -> list[str]:
    """Return the columns of one load in one mode."""
    best = f"{cell['to_best_fixed']['median']:.2f} ({cell['best_fixed']})"
    control = f"{cell['control']['median']:.2f}" if "control" in cell else ""
    return [f"{cell['to_none']['median']:.2f}", best, control]
