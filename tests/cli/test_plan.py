"""``vllm-ascend-spec plan``."""

from __future__ import annotations

import http.server
import json
import math
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from vllm_ascend_spec.cli import plan
from vllm_ascend_spec.cli.main import main
from vllm_ascend_spec.graphs.budget import OWN_GRAPHS

ENGINE = ("--max-num-seqs", "64", "--num-speculative-tokens", "3")


def record_of(capsys, *words: str) -> dict[str, Any]:
    assert main(["plan", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def error_of(capsys, *words: str) -> str:
    assert main(["plan", *words]) == 2
    printed = capsys.readouterr()
    assert not printed.out
    (line,) = printed.err.splitlines()
    return line


def test_record(capsys) -> None:
    found = record_of(capsys, *ENGINE, "--graphs", "12", "--load", "zipf")
    for name in ("ours", "vllm", "vllm_ascend"):
        policy = found[name]
        assert policy["sizes"] == sorted(policy["sizes"])
        assert all(size % 4 == 0 for size in policy["sizes"])
        assert 0 <= policy["expected_padding"] < 1
        assert policy["eager_batches"] == []
    assert len(found["ours"]["sizes"]) == 12
    assert found["ours"]["sizes"][-1] == 256
    assert found["vllm"]["source"].startswith("port")
    assert found["load"] == "zipf"


def test_without_a_budget_there_are_as_many_graphs_as_vllm_captures(capsys) -> None:
    found = record_of(capsys, *ENGINE)
    assert found["ours"]["graphs"] == found["vllm"]["graphs"]
    assert found["graphs_limited_by"] == "as many as vLLM captures"
    assert found["ours"]["expected_waste"] <= found["vllm"]["expected_waste"]


@pytest.mark.parametrize(
    ("words", "sizes"),
    [
        (("--max-num-seqs", "4", "--num-speculative-tokens", "4"), {"4": [5, 10, 15, 20]}),
        (
            ("--max-num-seqs", "32", "--num-speculative-tokens", "3"),
            {"3": list(range(4, 129, 4))},
        ),
        (
            ("--max-num-seqs", "6", "--tiers", "0,4"),
            {"0": list(range(1, 7)), "4": list(range(5, 31, 5))},
        ),
        (
            ("--max-num-seqs", "12", "--tiers", "[[1,4,3],[5,12,1]]"),
            {"1": list(range(10, 25, 2)), "3": [4, 8, 12, 16]},
        ),
    ],
)
def test_without_a_budget_each_of_few_batch_sizes_has_its_own_graph(
    words: tuple[str, ...], sizes: dict[str, list[int]], capsys
) -> None:
    found = record_of(capsys, *words)
    assert found["ours"]["sizes_by_k"] == sizes
    assert found["ours"]["expected_padding"] == 0
    assert found["graphs_limited_by"] == "one for each batch size that the load has"


def test_more_batch_sizes_than_that_share_graphs(capsys) -> None:
    found = record_of(capsys, "--max-num-seqs", "40", "--num-speculative-tokens", "3")
    assert found["vllm"]["graphs"] < found["ours"]["graphs"] == OWN_GRAPHS
    assert found["graphs_limited_by"] == f"at most {OWN_GRAPHS}"


def test_table(capsys) -> None:
    words = ("--max-num-seqs", "256", "--num-speculative-tokens", "7", "--graphs", "12")
    assert main(["plan", *words]) == 0
    text = capsys.readouterr().out
    rows = {line.split("  ")[0]: line for line in text.splitlines()}
    assert rows["ours"].split()[1:3] == ["12", "256"]
    # vLLM's graphs end at 512 tokens.
    assert rows["vLLM"].split()[1:3] == ["48", "64"]
    assert "nothing is measured" in text
    assert "sizes: [" in text


def test_a_schedule_and_several_k(capsys) -> None:
    found = record_of(capsys, "--max-num-seqs", "64", "--tiers", "[[1,16,3],[17,64,1]]")
    assert found["tiers"] == [
        {"k": 1, "batches": [[17, 64]]},
        {"k": 3, "batches": [[1, 16]]},
    ]
    assert found["ours"]["sizes_by_k"]["1"][-1] == 128
    assert found["ours"]["sizes_by_k"]["3"][-1] == 64
    found = record_of(capsys, "--max-num-seqs", "64", "--tiers", "1,3", "--graphs", "9")
    assert found["ours"]["graphs"] == 9
    assert "V1 has no FULL graphs" in found["vllm"]["notes"][0]


def test_ranks(capsys) -> None:
    words = ("--max-num-seqs", "64", "--num-speculative-tokens", "2", "--tp", "4")
    found = record_of(capsys, *words, "--graphs", "5")
    assert found["divisor"] == 4
    assert all(size % math.lcm(3, 4) == 0 for size in found["ours"]["sizes"])
    # vLLM's rule ends with an error, vllm-ascend's does not.
    assert "multiples of both 3 (K+1) and 4" in found["vllm"]["problem"]
    assert found["vllm"]["expected_padding"] is None
    assert found["vllm_ascend"]["sizes"]
    assert main(["plan", *words]) == 0
    assert "vLLM does not start" in capsys.readouterr().out
    found = record_of(capsys, *words, "--no-sequence-parallel")
    assert found["divisor"] == 1


def test_loads_of_files(capsys, tmp_path: Path) -> None:
    counts = tmp_path / "counts.csv"
    counts.write_text("requests,count\n3,5\n9,1\n")
    found = record_of(capsys, *ENGINE, "--load", str(counts))
    assert found["ours"]["sizes"] == [12, 36, 256]
    assert found["ours"]["expected_padding"] == 0
    counts.write_text("requests,count\n3,5\n9,x\n")
    error = error_of(capsys, *ENGINE, "--load", str(counts))
    assert "counts.csv, line 3" in error
    assert "requests count" in error


METRICS = """# HELP vllm:spec_decode_batch_requests x
# TYPE vllm:spec_decode_batch_requests histogram
vllm:spec_decode_batch_requests_bucket{k="3",le="2"} 0
vllm:spec_decode_batch_requests_bucket{k="3",le="3"} 8
vllm:spec_decode_batch_requests_bucket{k="3",le="+Inf"} 8
vllm:spec_decode_batch_requests_count{k="3"} 8
vllm:spec_decode_batch_requests_sum{k="3"} 24
"""


class Metrics(http.server.BaseHTTPRequestHandler):
    """Answers as a server's ``/metrics``."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(METRICS.encode())

    def log_message(self, *_: object) -> None:
        pass


def test_live_metrics(capsys, tmp_path: Path) -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Metrics)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}/metrics"
    try:
        found = record_of(capsys, *ENGINE, "--load", url)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert found["load"] == f"vllm:spec_decode_batch_requests of {url}"
    assert found["ours"]["sizes"] == [12, 256]
    assert "cannot be read" in error_of(capsys, *ENGINE, "--load", url)
    saved = tmp_path / "metrics.txt"
    saved.write_text(METRICS)
    assert record_of(capsys, *ENGINE, "--load", str(saved))["ours"]["sizes"] == [12, 256]


def test_step_times_and_eager_steps(capsys, tmp_path: Path) -> None:
    times = tmp_path / "times.csv"
    times.write_text("tokens,ms\n1,10\n128,10\n256,20\n")
    words = (*ENGINE, "--step-times", str(times), "--graphs", "2")
    found = record_of(capsys, *words)
    assert found["work"] == {"unit": "ms", "eager_factor": 2.0}
    assert found["ours"]["sizes"][0] >= 128
    found = record_of(capsys, *ENGINE, "--graphs", "1", "--allow-eager", "--eager-factor", "1.1")
    assert found["ours"]["eager_batches"]
    assert "cost the load more than they save" in found["ours"]["notes"][0]


def test_measured_memory_bounds_the_plan(capsys) -> None:
    measured = ("--graph-mib", "4", "--row-kib", "16")
    found = record_of(capsys, *ENGINE, "--memory-mib", "40", *measured)
    # 4 MiB for the 256 tokens of the largest, and nine graphs of 4 MiB.
    assert found["ours"]["graphs"] == 9
    assert found["graphs_limited_by"] == "the budget"
    found = record_of(capsys, *ENGINE, "--memory-mib", "6", *measured)
    assert found["ours"]["sizes"] == [128]
    assert "bytes=6291456" in found["ours"]["notes"][0]


@pytest.mark.parametrize("option", plan.MOVED)
def test_an_option_that_is_gone_says_why_in_one_line(option: str, capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["plan", *ENGINE, f"{option}=1"])
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"vllm-ascend-spec plan: error: {option} {plan.MOVED[option]}"


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (
            ["--max-num-seqs", "0", "--num-speculative-tokens", "3"],
            ["--max-num-seqs=0", "1 or more"],
        ),
        (["--num-speculative-tokens", "3"], ["--max-num-seqs", "is missing"]),
        (["--max-num-seqs", "8"], ["--num-speculative-tokens", "--tiers"]),
        (["--max-num-seqs", "8", "--num-speculative-tokens", "0"], ["--num-speculative-tokens=0"]),
        ([*ENGINE, "--graphs", "0"], ["--graphs=0", "nearest: 1"]),
        ([*ENGINE, "--tp", "0"], ["--tp=0"]),
        ([*ENGINE, "--tp", "512"], ["--tp=512", "nearest: max_num_seqs=128"]),
        ([*ENGINE, "--tiers", "three"], ["--tiers='three'", "[[1,64,3]"]),
        ([*ENGINE, "--tiers", "[[1,64,3],[70,80,1]]"], ["--tiers", "[65, LAST, K]"]),
        ([*ENGINE, "--tiers", "1,7"], ["--tiers='1,7'", "K=7"]),
        ([*ENGINE, "--tiers", "0"], ["--tiers='0'", "no K above 0"]),
        ([*ENGINE, "--tiers", "1,1"], ["--tiers", "nearest: 1"]),
        ([*ENGINE, "--load", "no-such-file"], ["--load", "no such file", "zipf"]),
        ([*ENGINE, "--load", "normal:4"], ["--load='normal:4'"]),
        ([*ENGINE, "--load", "normal:4,0"], ["--load"]),
        ([*ENGINE, "--step-times", "no-such-file"], ["--step-times", "cannot be read"]),
        ([*ENGINE, "--eager-factor", "0.5"], ["--eager-factor=0.5"]),
        ([*ENGINE, "--memory-mib", "100"], ["--memory-mib=100", "--graph-mib"]),
        ([*ENGINE, "--row-kib", "8"], ["--row-kib=8", "no effect without --memory-mib"]),
        ([*ENGINE, "--graph-mib", "8"], ["--graph-mib=8", "no effect without --memory-mib"]),
        (
            [*ENGINE, "--graph-mib", "8", "--memory-mib", "1"],
            ["--memory-mib", "nearest that works"],
        ),
        ([*ENGINE, "--graph-mib", "-1"], ["--graph-mib=-1"]),
        ([*ENGINE, "--max-num-batched-tokens", "3"], ["--max-num-batched-tokens=3", "64 or more"]),
    ],
)
def test_bad_input_is_one_line(words: list[str], parts: list[str], capsys) -> None:
    line = error_of(capsys, *words)
    for part in parts:
        assert part in line


def test_it_answers_without_vllm_and_torch() -> None:
    """Which take seconds to import."""
    words = ["plan", *ENGINE]
    code = (
        f"import sys; from vllm_ascend_spec.cli.main import main; status = main({words!r}); "
        "sys.exit(status or [m for m in ('torch', 'vllm') if m in sys.modules] or None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "vLLM: port of the rule" in done.stdout
