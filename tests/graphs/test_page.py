"""The figures of ``docs/graphs.md`` are what the code gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT
from vllm_ascend_spec.cli import plan_policies, plan_report
from vllm_ascend_spec.cli.main import build_parser
from vllm_ascend_spec.cli.plan_inputs import case_of
from vllm_ascend_spec.graphs import stock_rules
from vllm_ascend_spec.graphs.stock_rules import CaptureInputs, Stock
from vllm_ascend_spec.graphs.tiers import tiers_of_drafts

PAGES = (ROOT / "docs" / "graphs.md", ROOT / "docs" / "graphs.zh.md")
COMMAND = "plan --max-num-seqs 256 --num-speculative-tokens 3 --graphs 12 --load zipf"


def example_rows() -> list[str]:
    """Return what the page shows of the example's table."""
    case = case_of(build_parser().parse_args(COMMAND.split()))
    found = plan_policies.compare(case)
    rows = []
    for name, policy in {"ours": found.ours, **found.stock}.items():
        row = plan_report.row_of(plan_report.NAMES[name], policy, case)
        rows.append("| " + " | ".join([*row[:5], row[6]]) + " |")
    return rows


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_table_is_what_the_command_gives(page: Path) -> None:
    text = page.read_text()
    assert "\n".join(example_rows()) in text
    assert COMMAND in text


@pytest.mark.parametrize("rule", [stock_rules.vllm, stock_rules.vllm_ascend])
def test_the_default_lists_are_as_short_as_the_page_says(
    rule: Callable[[CaptureInputs], Stock],
) -> None:
    sizes = rule(CaptureInputs(256, tiers_of_drafts(256, [3]))).sizes_by_k[3]
    assert sizes[-1] == 128 * 4
    assert 3 * 4 not in sizes
    assert 4 * 4 in sizes
