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
            columns = [*shown(kind, cell), *shown(kind, compiled[part][load])]
            yield row(load.replace(", plain", ""), *columns)


def shown(kind: str, cell: Record) -> list[str]:
    """Return the columns of one load in one mode."""
    engines = ("none", "K=3", kind) if kind == "auto" else ("none", kind)
    speeds = " / ".join(f"{cell['tokens_per_s'][engine]['median']:.0f}" for engine in engines)
    best = f"{cell['to_best_fixed']['median']:.2f} ({cell['best_fixed']})"
    factors = " · ".join(f"{value:.2f}" for value in cell.get("factors", {}).values())
    control = f"{cell['control']['median']:.2f}" if "control" in cell else ""
    columns = [speeds, f"{cell['to_none']['median']:.2f}", best]
    return [*columns, control] if kind == "auto" else [*columns, factors, control]
