"""Counts on the simulated NPU, beside plain vllm-ascend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tests.docs.figures.rows import read, row

COUNTS = (
    ("verification: device ops", "verification", "device_ops"),
    ("verification: bytes", "verification", "bytes"),
    ("verification: syncs", "verification", "syncs"),
    ("whole step: syncs", "step", "syncs"),
    ("whole step: bytes to the host", "step", "d2h_bytes"),
)


def rows() -> Iterator[str]:
    """Yield the rows: a count of one kind of request each."""
    results = read("npu-sim")["results"]
    ours, theirs = results["vllm-ascend-spec"], results["vllm-ascend"]
    for kind in ours:
        for title, part, count in COUNTS:
            one, other = ours[kind][part][count], theirs[kind][part][count]
            ratio = f"{one / other:.2f}" if other else "–"
            yield row(kind, title, f"{one:,.0f}", f"{other:,.0f}", ratio)
        rows_of_draft = [draft_rows(side[kind]["draft_rows"]) for side in (ours, theirs)]
        yield row(kind, "draft model: rows × passes", *rows_of_draft, "")


def draft_rows(found: Mapping[str, float]) -> str:
    """Return how often the draft model read how many rows."""
    return ", ".join(f"{rows} × {times:g}" for rows, times in found.items())
