"""Chains and trees: tokens per step, their speed on a CPU, and counts on the simulated NPU."""

from __future__ import annotations

from collections.abc import Iterator

from tests.docs.figures.rows import Record, read, row

REQUESTS = ("greedy", "T=0.8")
CHAIN, TREE, ADAPTIVE = "chain", "tree", "adaptive"
# Of a draft model and of n-grams.
SPEEDS = ("trees-speed-cpu", "trees-speed-ngram-cpu")


def tokens() -> Iterator[str]:
    """Yield tokens per step with as many rows."""
    for found in read("trees-cpu")["tokens_per_step"]:
        cells = (f"{found[CHAIN][kind]:.2f} → {found[TREE][kind]:.2f}" for kind in REQUESTS)
        yield row(f"`{found['method']}`", str(found["rows"]), *cells)


def speed() -> Iterator[str]:
    """Yield tokens per second of the best chain, and of trees and the choice, of that chain's."""
    found: dict[tuple[str, int], list[Record]] = {}
    for each in (one for name in SPEEDS for one in read(name)["speed"]):
        found.setdefault((each["method"], each["batch"]), []).append(each)
    for (method, batch), engines in found.items():
        by_way = {
            way: [each for each in engines if each["way"] == way] for way in (CHAIN, TREE, ADAPTIVE)
        }
        best = max(by_way[CHAIN], key=lambda each: each["tokens_per_s"]["median"])
        chain = f"K={best['drafts']}: {best['tokens_per_s']['median']:.0f}"
        trees = (f"{each['drafts']}: {ratio_of(each)}" for each in by_way[TREE])
        choices = (
            f"{each['drafts']}: {ratio_of(each)} ({each['steps_in_trees']:.0%})"
            for each in by_way[ADAPTIVE]
        )
        yield row(f"`{method}`", str(batch), chain, ", ".join(trees), ", ".join(choices))


def ratio_of(engine: Record) -> str:
    """Return an engine's tokens per second, of the best chain's."""
    return f"{engine['of_the_best_chain']['median']:.2f}"


def counts() -> Iterator[str]:
    """Yield counts of a step on the simulated NPU."""
    results = read("trees-npu-sim")["results"]
    for name, found in results.items():
        ops = (f"{found[part]['device_ops']:,.0f}" for part in ("target", "verification", "step"))
        step = found["step"]
        rest = (f"{step['bytes']:,.0f}", f"{step['syncs']:,.0f}")
        label = name if name.isalpha() or " " in name else f"`{name}`"
        yield row(label, f"{sum(found['draft_rows'].values()):g}", *ops, *rest)
