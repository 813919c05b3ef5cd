"""``benchmarks verify``: geometric means of its cases."""

from __future__ import annotations

from collections.abc import Iterator

from tests.benchmarks.verify.summary import BLOCK_KINDS
from tests.docs.figures.rows import Record, read, row

BLOCK = "token rule"


def to_peers() -> Iterator[str]:
    """Yield how many times faster than its peers each kind of request is verified."""
    cold = {
        found["kind"]: found["geomeans"] for found in read("verify-cpu-cold")["summary"]["by_kind"]
    }
    for found in read("verify-cpu")["summary"]["by_kind"]:
        means = found["geomeans"]
        if BLOCK not in means:
            cells = [spread(means[peer], ".0f") for peer in ("vllm", "torch")]
            yield row(found["kind"], *cells, spread(cold[found["kind"]]["share_of_read"], ".0%"))


def on_a_gpu() -> Iterator[str]:
    """Yield the same of a GPU, without the comparison with a plain read."""
    for found in read("verify-cuda")["summary"]["by_kind"]:
        means = found["geomeans"]
        if BLOCK not in means:
            yield row(found["kind"], *(spread(means[peer], ".1f") for peer in ("vllm", "torch")))


def block_rule() -> Iterator[str]:
    """Yield what the block rule takes of the token rule's time."""
    for found in read("verify-cpu")["summary"]["by_kind"]:
        if found["kind"] in BLOCK_KINDS:
            yield row(found["kind"], found["acceptance"], spread(found["geomeans"][BLOCK], ".2f"))


def seeded() -> Iterator[str]:
    """Yield what seeded samples take of the token rule's time."""
    for found in read("verify-seeded-cpu")["summary"]["by_kind"]:
        means = found["geomeans"]
        yield row(found["kind"], spread(means[BLOCK], ".2f"))


def spread(found: Record, form: str) -> str:
    """Return a geometric mean with the lowest and the highest case."""
    low, high = (format(found[name], form) for name in ("lowest", "highest"))
    return f"**{found['geomean']:{form}}** ({low}-{high})"
