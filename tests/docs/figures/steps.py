"""``benchmarks step`` and ``benchmarks propose``: where the time of a step goes."""

from __future__ import annotations

from collections.abc import Iterator

from tests.docs.figures.rows import Record, read, row

NOTHING = "–"


def parts() -> Iterator[str]:
    """Yield milliseconds of a step: a row for each part, a column for each engine."""
    engines = list(read("step-cpu-eager")["results"].values())
    whole = [f"**{engine['ms_per_step']['median']:.2f}**" for engine in engines]
    yield row("**whole step**", *whole)
    names = dict.fromkeys(name for engine in engines for name in engine["parts_ms"])
    # What is common to all of them comes last.
    for name in sorted(names, key="rest".__eq__):
        times = [engine["parts_ms"].get(name) for engine in engines]
        cells = [NOTHING if time is None else f"{time:.2f}" for time in times]
        yield row(name.replace("- ", "· "), *cells)
    yield row("tokens per step", *(f"{engine['tokens_per_engine_step']:.2f}" for engine in engines))
    yield row("tokens/s", *(f"{engine['tokens_per_s']['median']:.0f}" for engine in engines))


def overhead() -> Iterator[str]:
    """Yield what drafting costs beside the draft model: a row for each method."""
    by_method: dict[str, list[str]] = {}
    for name in ("propose-cpu", "propose-suffix-cpu"):
        by_method |= overhead_of(read(name))
    for method, cells in by_method.items():
        yield row(f"`{method}`", *cells)


def overhead_of(record: Record) -> dict[str, list[str]]:
    """Return the columns of a record's methods, one batch size after the other."""
    by_method: dict[str, list[str]] = {}
    for found in record["results"]:
        model = f"{found['model_ms']:.2f}" if found["model_ms"] else NOTHING
        cells = [f"{found['ms_per_step']['median']:.1f}", f"{found['draft_ms']:.2f}", model]
        by_method.setdefault(found["method"], []).extend([*cells, f"{found['own_share']:.1%}"])
    return by_method
