"""What the figures of ``benchmarks verify`` come to, as lines, as Markdown and as a picture."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.verify import report, summary
from tests.benchmarks.verify.cases import KINDS
from tests.benchmarks.verify.summary import AIMS, SHARE, Aim, judge, summarise

JUDGED = "cpu"


def figure(value: float) -> dict[str, float]:
    return {"median": value, "low": value * 0.9, "high": value * 1.1}


def row(
    kind: str = "greedy", batch: int = 1, acceptance: str = "all", **ratios: float
) -> dict[str, Any]:
    """Return a row of a record; ``share_of_read`` and "token rule" are among ``ratios``."""
    share = ratios.pop(SHARE, None)
    names = {"token_rule": "token rule"}
    rule = KINDS[kind].rule
    peers = () if rule == "block" else ("torch", "vllm")
    peers += () if rule == "token" else ("cpu, token rule",)
    memory = {"peak_bytes": 2_500_000, "vocab_sized": True}
    return {
        "kind": kind,
        "vocab": 32_000,
        "batch": batch,
        "acceptance": acceptance,
        "milliseconds": {name: figure(0.5) for name in (JUDGED, *peers, "read: sum")},
        "ratios": {
            JUDGED: {names.get(name, name): figure(value) for name, value in ratios.items()}
        },
        "read": {"by": "read: sum", "gb_per_s": figure(20.0)},
        "bandwidth": share and {JUDGED: {"gb_per_s": figure(20 * share), SHARE: figure(share)}},
        "memory": dict.fromkeys(("torch", "vllm"), memory)
        | {
            JUDGED: {
                "peak_bytes": 0,
                "vocab_sized": False,
                "outside_pytorch_bytes_per_thread_at_most": 65536,
            }
        },
        "skipped": {},
        "cpu_share": 0.99,
    }


def record(*rows: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "judged": JUDGED,
        "results": list(rows),
        "overhead": [
            {
                "kind": "greedy",
                "vocab": 32_000,
                "batch": 1,
                "microseconds": {
                    "checks": figure(4.0),
                    "uniforms": figure(3.0),
                    "whole": figure(40.0),
                },
                "checks_share": figure(0.1),
            }
        ],
        "plan": {"dtype": "float32", "threads": 1},
        "provenance": {"machine": {"load": [0.2, 0.1, 0.1]}},
        "device": {"name": "a CPU"},
    }
    found["summary"] = summarise(found)
    return found


def aim(by: str = "geomean", at_least: bool = True, limit: float = 4, **more: Any) -> Aim:
    return Aim("times faster", "greedy", more.pop("figure", "vllm"), limit, by, at_least, **more)


@pytest.mark.parametrize(
    ("wanted", "value", "met"),
    [
        (aim(), 4.0, True),  # 2 * 8, square root
        (aim(limit=4.01), 4.0, False),
        (aim(by="worst"), 2.0, False),
        (aim(by="worst", limit=2), 2.0, True),
        (aim(by="worst", at_least=False, limit=8), 8.0, True),
        (aim(by="worst", at_least=False, limit=7), 8.0, False),
        (aim(min_batch=8, limit=8), 8.0, True),
        (aim(min_batch=9), None, None),
        (aim(acceptance="mixed", limit=1), 1.5, True),
        (aim(figure="argmax"), None, None),
        (aim(figure=SHARE, by="worst", limit=0.4), 0.3, False),
    ],
)
def test_aims_are_judged(wanted: Aim, value: float | None, met: bool | None) -> None:
    rows = [
        row(vllm=2.0, share_of_read=0.3),
        row(batch=8, vllm=8.0, share_of_read=0.7),
        row(vllm=1.5, acceptance="mixed"),
        row("plain", vllm=100.0),
    ]
    judged = judge(wanted, rows, JUDGED)
    assert judged["value"] == (None if value is None else pytest.approx(value))
    assert judged["met"] is met


def test_the_aims_are_these() -> None:
    found = {(a.kind, a.acceptance, a.figure, a.comparison, a.by) for a in AIMS}
    assert {
        ("greedy", "all", "argmax", "<= 1.25", "worst"),
        ("greedy", "all", "vllm", ">= 4", "geomean"),
        ("top-p", "all", "vllm", ">= 15", "geomean"),
        ("plain", "all", "vllm", ">= 8", "geomean"),
        ("plain", "all", SHARE, ">= 0.4", "worst"),
        ("block", "mixed", "token rule", "<= 1.3", "worst"),
        ("seeded", "all", "token rule", "<= 1.3", "worst"),
    } <= found
    assert all(a.min_batch == 8 for a in AIMS if a.figure == SHARE)
    assert all(a.kind in KINDS for a in AIMS)
    for kind, found in KINDS.items():
        compared = {a.figure for a in AIMS if a.kind == kind}
        assert ("token rule" in compared) == (found.rule != "token")


def test_summary_by_kind() -> None:
    found = record(row(vllm=2.0), row(batch=8, vllm=8.0), row("block", token_rule=1.1))
    greedy, block = found["summary"]["by_kind"]
    assert greedy["geomeans"]["vllm"] == {
        "geomean": 4.0,
        "lowest": 2.0,
        "highest": 8.0,
        "cases": 2,
    }
    assert set(block["geomeans"]) == {"token rule"}


def test_a_missed_aim_is_called_missed() -> None:
    lines = list(summary.aim_lines(record(row(vllm=3.0), row("plain", vllm=9.0))))
    assert "missed: greedy, accepted all: >= 4 times faster than vLLM; geomean 3.00 " in "".join(
        lines
    )
    assert any(line.startswith("met: plain") for line in lines)
    assert any(line.startswith("not measured: block") for line in lines)
    assert len(lines) == len(AIMS)


def test_lines_of_the_terminal() -> None:
    skipped = row(batch=32, vllm=20.0, argmax=1.2, share_of_read=0.5)
    skipped["skipped"] = {"reference": "would take 200 s, the limit is 120 s"}
    line = summary.format_row(skipped, JUDGED)
    for words in ("B=32", "xvllm 20.00", "/ argmax 1.20", "50% of 20.0 GB/s", "reference skipped"):
        assert words in line
    text = summary.format_summary(record(skipped))
    assert "4.0 us of 40.0 us (10%)" in text
    assert "vllm 20.00 (20.00-20.00)" in text


@pytest.mark.parametrize(
    ("share", "threads", "load", "busy"),
    [
        (0.5, 1, 0.2, True),
        (0.96, 1, 0.2, False),
        (0.96, 1, 3.0, True),
        (None, 1, 0.2, False),
        (1.7, 2, 0.2, False),
        (0.5, 2, 0.2, False),
        (1.7, 2, 3.0, True),
    ],
)
def test_a_busy_machine_is_said(share: float | None, threads: int, load: float, busy: bool) -> None:
    found = record(row() | {"cpu_share": share})
    found["plan"]["threads"] = threads
    found["provenance"]["machine"]["load"] = [load]
    assert ("the machine was busy: load" in summary.format_summary(found)) == busy


def test_markdown_has_a_table_for_each_rule() -> None:
    text = report.markdown(
        record(
            row(vllm=2.0, torch=3.0, share_of_read=0.5),
            row("plain", acceptance="mixed", vllm=2.0),
            row("block", acceptance="mixed", token_rule=1.1),
            row("seeded-no-drafts", token_rule=1.2, vllm=9.0),
        )
    )
    tables = [part.splitlines() for part in text.split("\n\n")]
    assert tables[0][2].startswith("| greedy | 32,000 | 1 | 0.5 | 0.5 | 2.00 (1.80-2.20) | 0.5 |")
    assert "10.0 (50%) | 0 + < 64 KiB a thread / 2.5 MB / 2.5 MB |" in tables[0][2]
    assert tables[0][3].startswith("| sampled, mixed acceptance |")
    assert tables[1][2] == "| block rule | 32,000 | 1 | mixed | 0.5 | 0.5 | 1.10 (0.99-1.21) |"
    assert tables[2][2] == (
        "| seeded, no drafts | 32,000 | 1 | 0.5 | 0.5 | 1.20 (1.08-1.32) | 0.5 | 9.00 (8.10-9.90) |"
    )
    for table in tables[:3]:
        assert len({line.count("|") for line in table}) == 1
    assert tables[3][0].startswith("- ")


def test_markdown_of_one_rule_has_one_table() -> None:
    text = report.markdown(record(row("block", token_rule=1.1)))
    assert "vLLM, ms" not in text
    assert "block / token" in text


def test_a_peer_that_was_skipped_is_a_dash() -> None:
    only_ours = row()
    only_ours["milliseconds"] = {JUDGED: figure(0.5)}
    only_ours["memory"] = {}
    line = report.markdown(record(only_ours)).splitlines()[2]
    assert line == "| greedy | 32,000 | 1 | 0.5 | - | - | - | - | - | - | - / - / - |"


def test_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib draws the picture")
    path = tmp_path / "record.png"
    said = report.draw(record(row(vllm=2.0), row("block", token_rule=1.1)), path)
    assert said == f"picture: {path}"
    assert path.read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_there_is_a_line_and_no_picture(tmp_path: Path, monkeypatch) -> None:
    load = builtins.__import__

    def no_matplotlib(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return load(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", no_matplotlib)
    path = tmp_path / "record.png"
    assert report.draw(record(row(vllm=2.0)), path) == report.NO_MATPLOTLIB
    assert not path.exists()
