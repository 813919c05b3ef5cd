"""The figures of ``docs/graphs.md``, worked out again."""

from __future__ import annotations

import re
from pathlib import Path

from vllm_ascend_spec.graphs import stock_rules
from vllm_ascend_spec.graphs.batch_distribution import uniform, weights_of
from vllm_ascend_spec.graphs.k_buckets import buckets_of_drafts
from vllm_ascend_spec.graphs.padding_stats import padding_of
from vllm_ascend_spec.graphs.step_cost import StepCost
from vllm_ascend_spec.graphs.stock_rules import CaptureInputs

DOCS = Path(__file__).parents[2] / "docs"
PAGES = (DOCS / "graphs.md", DOCS / "graphs.zh.md")
SEQS, DRAFTS = 256, (1, 2, 3, 5, 7)


def stock_rows() -> list[list[str]]:
    """Return how far the stock rules reach and their worst hole, for each K."""
    return [[str(k), *_stock("vllm", k), *_stock("vllm_ascend", k)] for k in DRAFTS]


def _stock(rule: str, k: int) -> list[str]:
    tiers = buckets_of_drafts(SEQS, [k])
    sizes = getattr(stock_rules, rule)(CaptureInputs(SEQS, tiers)).sizes_by_k
    found = padding_of(tiers, sizes, weights_of(uniform(SEQS), tiers, SEQS), StepCost())
    assert found.worst is not None
    return [
        str(len(sizes[k])),
        str(sizes[k][-1] // (k + 1)),
        f"{found.worst.requests} → {found.worst.size // (k + 1)}, {found.worst.padding:.0%}",
    ]


def tables_of(page: Path) -> list[list[list[str]]]:
    """Return the cells of each table of a page, without its heading."""
    found: list[list[list[str]]] = []
    before = ""
    for line in page.read_text().splitlines():
        if line.startswith("|"):
            if not before.startswith("|"):
                found.append([])
            if not re.fullmatch(r"[|\- :]+", line):
                found[-1].append([cell.strip() for cell in line.strip("|").split("|")])
        before = line
    return [table[1:] for table in found]
