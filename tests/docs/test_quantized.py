"""What the documents say of quantized checkpoints is the record, and the record is as promised."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from examples.zoo import quantized
from examples.zoo.quantized import DYNAMIC, FLOAT, STATIC

RECORD: dict[str, Any] = json.loads(quantized.RECORD.read_text())
DRAFTS = {
    (row["target"], row["type"], row["method"], row["draft"]): row["rate"]
    for row in RECORD["drafts"]
}


@pytest.mark.parametrize("page", quantized.PAGES, ids=lambda page: page.name)
def test_the_table_is_that_of_the_record(page: Path) -> None:
    text = page.read_text()
    lines = quantized.table(RECORD, quantized.language_of(page))
    assert text == quantized.with_table(text, lines), "examples/zoo/quantized.py --report"


@pytest.mark.parametrize("kind", [STATIC, DYNAMIC])
def test_perplexity_is_within_2_percent(kind: str) -> None:
    rows = RECORD["targets"]
    assert rows[kind]["perplexity"] == pytest.approx(rows[FLOAT]["perplexity"], rel=0.02)


def test_acceptance_is_within_3_percent() -> None:
    assert set(DRAFTS) == set(quantized.DRAFTED)
    for (target, _, method, draft), rate in DRAFTS.items():
        in_float = DRAFTS[target, FLOAT, method, None if draft is None else FLOAT]
        assert rate == pytest.approx(in_float, rel=0.03), (target, method, draft)
