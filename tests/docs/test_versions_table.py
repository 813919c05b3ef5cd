"""What docs/versions.md says was run is what the record says, and no answer in it differs."""

from __future__ import annotations

import pytest

from tests.versions import record

RECORD = record.read()
PAGES = ("versions.md", "versions.zh.md")
# What upstream/limits.py refuses.
WITHOUT = {"vLLM 0.23.0": {"dflash", "deepseek_mtp"}}


@pytest.mark.parametrize("page", PAGES)
def test_the_table_is_that_of_the_record(page: str) -> None:
    text = (record.ROOT / "docs" / page).read_text()
    assert "\n".join(record.table(RECORD)) in text, "python -m tests.versions.record --table"


@pytest.mark.parametrize("version", RECORD["versions"])
def test_every_answer_equals_that_without_speculation(version: str) -> None:
    methods = RECORD["versions"][version]["methods"]
    assert methods.keys() == record.SPECS.keys()
    for method in methods.keys() - WITHOUT.get(version, set()):
        for mode, found in methods[method].items():
            assert found["equal"] == found["of"] == RECORD["prompts"], (method, mode)


def test_a_cell_has_two_figures_only_where_they_differ() -> None:
    same, other = {"equal": 2, "of": 2, "tokens_per_step": 2.0}, {"equal": 1, "of": 2}
    methods = {
        "eagle": {"eager": same, "compiled": same},
        "ngram": {"eager": same, "graphs": other},
    }
    lines = list(record.table({"versions": {"vLLM 9": {"methods": methods}}}))
    assert lines[:3] == ["| | vLLM 9 |", "|---|---|", "| `eagle` | 2.00 |"]
    assert "| `ngram` | 2.00 / **1 of 2** |" in lines
