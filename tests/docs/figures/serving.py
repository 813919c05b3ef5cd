"""``bench serve``: a row for each load, its modes side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.docs.figures.rows import Record, median, read, row


def rows(name: str, peers: Sequence[str] = ()) -> Iterator[str]:
    """Yield the rows of a record.

    Args:
        name: of the record.
        peers: what speculation is compared with, by their names in the record; without any, with
            no speculation.
    """
    by_load: dict[str, list[Record]] = {}
    for found in read(name)["results"]:
        by_load.setdefault(found["load"], []).append(found)
    for load, modes in by_load.items():
        length = () if peers else (f"{modes[0]['acceptance']['tokens_per_step']:.2f}",)
        yield row(load, *length, *(cell for mode in modes for cell in shown(mode, peers)))


def shown(mode: Record, peers: Sequence[str]) -> list[str]:
    """Return the columns of one mode."""
    none, ours = (mode["tokens_per_s"][name]["median"] for name in ("none", "speculation"))
    speeds = f"{none:.0f} → {ours:.0f}"
    if not peers:
        return [f"{speeds}, {median(mode['speedup'])}"]
    to_peers = [median(mode["ours_to_peers"][peer]) for peer in peers]
    return [f"{speeds}, {mode['speedup']['median']:.2f}", *to_peers]
