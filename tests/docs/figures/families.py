"""Counts of a step on the simulated NPU by model family, beside plain vllm-ascend."""

from __future__ import annotations

from collections.abc import Iterator

from tests.docs.figures.rows import Record, read, row

# Where vllm-ascend fails, the patch of ours that lets it run, by a part of its error.
PATCHES = {
    "The expanded size of the tensor": "npu_partial_rotary",
    "actual_seq_lengths ends at": "npu_sink_lengths",
}
NOTHING = "–"


def rows() -> Iterator[str]:
    """Yield the rows: a target in one mode each."""
    record = read("npu-sim-families")
    for family, modes in record["results"].items():
        method = record["plans"][family]["speculative_config"]["method"]
        for mode, cell in modes.items():
            ours, theirs = cell["vllm-ascend-spec"], cell["vllm-ascend"]
            yield row(
                f"`{family}`, `{method}`",
                mode,
                later_rows(ours),
                later_rows(theirs),
                *both("device_ops", ours, theirs, 1),
                *both("bytes", ours, theirs, 1_000_000),
            )


def later_rows(counted: Record) -> str:
    """Return on how many rows each draft step after the first one runs, or why none does."""
    if "fails" in counted:
        error = counted["fails"]
        patch = next(patch for part, patch in PATCHES.items() if part in error)
        return f"fails: `{patch}`"
    # Step 1 has the most rows, and runs once.
    passes = [int(n) for n, times in counted["draft_rows"].items() for _ in range(round(times))]
    first, *later = sorted(passes, reverse=True)
    assert first >= max(later), "a later step is wider than step 1"
    return " + ".join(map(str, later))


def both(count: str, ours: Record, theirs: Record, unit: int) -> Iterator[str]:
    """Yield a count of both and the ratio."""
    one = ours["step"][count] / unit
    yield f"{one:,.0f}"
    if "fails" in theirs:
        yield from (NOTHING, NOTHING)
        return
    other = theirs["step"][count] / unit
    yield f"{other:,.0f}"
    yield f"{one / other:.2f}"
