"""The figures of ``docs/graphs.md`` are what the code gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.graphs.page import PAGES, SEQS, stock_rows, tables_of
from vllm_ascend_spec.cli import plan_policies, plan_report
from vllm_ascend_spec.cli.main import build_parser
from vllm_ascend_spec.cli.plan_inputs import case_of

COMMAND = "plan --max-num-seqs 256 --num-speculative-tokens 3 --graphs 12 --load zipf"


def example_rows() -> list[list[str]]:
    """Return what the page shows of the example's table."""
    case = case_of(build_parser().parse_args(COMMAND.split()))
    found = plan_policies.compare(case)
    policies = {"ours": found.ours, **found.stock, **found.same_graphs}
    shown = ("ours", "vllm", "vllm_cut", "vllm_thinned", "even_grid")
    rows = []
    for name in shown:
        row = plan_report.row_of(plan_report.NAMES.get(name, name), policies[name], case)
        rows.append([*row[:5], row[6]])
    return rows


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tables(page: Path) -> None:
    tables = tables_of(page)
    assert tables[0] == stock_rows()
    assert tables[1] == example_rows()
    assert COMMAND in page.read_text()
    assert str(SEQS) in COMMAND
