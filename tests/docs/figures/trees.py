"""``benchmarks trees``: tokens per step of chains and trees, and their speed on a CPU."""

from __future__ import annotations

from collections.abc import Iterator

from tests.docs.figures.rows import Record, read, row

REQUESTS = ("greedy", "T=0.8")
CHAIN, TREE = "chain", "tree"


def tokens() -> Iterator[str]:
    """Yield tokens per step with as many rows."""
    for found in read("trees-cpu")["tokens_per_step"]:
        cells = (f"{found[CHAIN][kind]:.2f} → {found[TREE][kind]:.2f}" for kind in REQUESTS)
        yield row(f"`{found['method']}`", str(found["rows"]), *cells)


def speed() -> Iterator[str]:
    """Yield tokens per second of the best chain and of each tree, of that chain's."""
    found: dict[tuple[str, int], list[Record]] = {}
    for each in read("trees-cpu")["speed"]:
        found.setdefault((each["method"], each["batch"]), []).append(each)
    for (method, batch), engines in found.items():
        chains = [each for each in engines if each["way"] == CHAIN]
        best = max(chains, key=lambda each: each["tokens_per_s"]["median"])
        trees = [
            f"{each['drafts']}: {each['of_the_best_chain']['median']:.2f}"
            for each in engines
            if each["way"] == TREE
        ]
        chain = f"K={best['drafts']}: {best['tokens_per_s']['median']:.0f}"
        yield row(f"`{method}`", str(batch), chain, ", ".join(trees))
