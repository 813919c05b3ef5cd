"""What ``tests/ascend/bench`` concludes from counts; tests/ascend/test_bench.py counts."""

from __future__ import annotations

import copy
import importlib.util
from typing import Any

import pytest

from tests.ascend.bench.__main__ import main
from tests.ascend.bench.counts import OURS, PLAIN, aims, environment, format_table


def counts(**verification: float) -> dict[str, Any]:
    part = {"device_ops": 10, "bytes": 1000, "syncs": 0, "d2h_bytes": 0, "h2d_bytes": 0}
    return {
        "verification": part | verification,
        "step": part | {"device_ops": 400, "syncs": 2},
        "draft_rows": {"32": 1.0, "8": 2.0},
        "tokens": [[1, 2], [3]],
    }


GOOD = {
    OURS: {"greedy": counts(device_ops=4, bytes=500), "sampled": counts(device_ops=4, bytes=500)},
    PLAIN: {"greedy": counts(), "sampled": counts(syncs=3)},
}


def missed(found: list[dict[str, Any]]) -> list[str]:
    return [aim["text"] for aim in found if not aim["met"]]


def test_all_aims_can_be_met() -> None:
    found = aims(GOOD, batch=8, num_drafts=3)
    assert missed(found) == []
    assert {aim["workload"] for aim in found} == {"greedy", "sampled"}


@pytest.mark.parametrize(
    ("part", "name", "value", "text"),
    [
        ("verification", "device_ops", 4.1, "verification device ops 0.41"),
        ("verification", "bytes", 501, "bytes moved by verification 0.50"),
        ("verification", "syncs", 1, "no wait of the host inside verification"),
        ("verification", "d2h_bytes", 4, "no copy from the device"),
        ("step", "syncs", 3, "no more waits of the host in a step"),
    ],
)
def test_each_count_can_miss_its_aim(part: str, name: str, value: float, text: str) -> None:
    worse = copy.deepcopy(GOOD)
    worse[OURS]["greedy"][part][name] = value
    (only,) = missed(aims(worse, batch=8, num_drafts=3))
    assert text in only


def test_wide_draft_steps_and_other_tokens_are_noticed() -> None:
    worse = copy.deepcopy(GOOD)
    worse[OURS]["greedy"] |= {"draft_rows": {"32": 3.0}, "tokens": [[1, 2], [4]]}
    wide, other = missed(aims(worse, batch=8, num_drafts=3))
    assert wide.startswith("draft steps 2..K")
    assert other == "the same tokens as vllm-ascend"


def test_nothing_of_vllm_ascend_to_compare_with_is_a_miss() -> None:
    worse = copy.deepcopy(GOOD)
    worse[PLAIN]["greedy"]["verification"]["bytes"] = 0
    (only,) = missed(aims(worse, batch=8, num_drafts=3))
    assert "inf of" in only


def test_the_table_has_counts_ratios_and_rows() -> None:
    lines = format_table(GOOD).splitlines()
    assert "| greedy | verification: device_ops | 4.0 | 10.0 | 0.40 |" in lines
    assert "| greedy | verification: syncs | 0.0 | 0.0 | - |" in lines
    assert "| sampled | draft model: rows x calls | 32 x 1, 8 x 2 | 32 x 1, 8 x 2 | |" in lines


def test_only_one_process_chooses_this_package() -> None:
    before = {"VLLM_PLUGINS": "other", "HOME": "/home"}
    ours, plain = (environment(name, before, "a,ascend_spec") for name in (OURS, PLAIN))
    assert ours["VLLM_PLUGINS"] == "a,ascend_spec"
    assert ours["VLLM_ASCEND_SPEC_DEVICE"] == "npu"
    assert "VLLM_PLUGINS" not in plain
    assert "VLLM_ASCEND_SPEC_DEVICE" not in plain
    assert plain["HOME"] == "/home"


@pytest.mark.skipif(importlib.util.find_spec("npu_sim") is not None, reason="it is installed here")
def test_without_the_simulator_it_says_how_to_get_it(capsys) -> None:
    assert main([]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("has no simulated NPU; run `make bench-npu-sim`")
