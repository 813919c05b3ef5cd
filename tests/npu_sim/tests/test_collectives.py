"""HCCL between two processes, launched one by one and in graphs."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from processes import start_python

RANKS = 2
SCRIPT = Path(__file__).with_name("collective_rank.py").read_text()


@pytest.fixture(scope="module")
def results():
    """What every rank got, by rank."""
    with socket.socket() as port_finder:
        port_finder.bind(("127.0.0.1", 0))
        port = port_finder.getsockname()[1]
    environment = {"NPU_SIM_DEVICES": str(RANKS), "NPU_SIM_HCCL_TIMEOUT_S": "120"}
    ranks = [
        start_python(SCRIPT, str(rank), str(RANKS), str(port), **environment)
        for rank in range(RANKS)
    ]
    outputs = []
    for rank in ranks:
        out, err = rank.communicate(timeout=300)
        assert rank.returncode == 0, err[-3000:]
        outputs.append(json.loads(out.splitlines()[-1]))
    return outputs


@pytest.mark.parametrize("how", ["eager", "captured"])
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # Rank r starts with [r + 1, 10 (r + 1)].
        ("all_reduce", [[3, 30], [3, 30]]),
        ("all_reduce_max", [[2, 20], [2, 20]]),
        ("all_reduce_bfloat16", [[3, 30], [3, 30]]),
        ("broadcast", [[2, 20], [2, 20]]),
        ("all_gather", [[1, 10, 2, 20], [1, 10, 2, 20]]),
        ("reduce_scatter", [[3], [30]]),
        ("all_to_all", [[1, 2], [10, 20]]),
        ("chain", [[12, 120], [12, 120]]),
        ("large", [[3], [3]]),
    ],
)
def test_collectives(results, how, name, expected):
    for rank, values in enumerate(expected):
        assert results[rank][how][name] == values


def test_replays_see_new_values(results):
    for rank in range(RANKS):
        assert results[rank]["replays"] == [[3, 30], [30, 300], [300, 3000]]


def test_collectives_are_counted(results):
    counts = results[0]["counts"]
    assert counts["hccl::all_reduce"] == [3, 3]  # launched, replayed
    assert counts["hccl::all_gather"] == [1, 1]


def test_unequal_amounts_are_an_error(results):
    for rank, (mine, other) in enumerate([(4, 8), (8, 4)]):
        said = f"rank {rank} exchanges {mine} bytes, rank {1 - rank} {other}"
        assert said in results[rank]["uneven"]


def test_a_rank_that_waits_in_vain_says_so():
    code = """
import ctypes
from npu_sim.native_parts import folder
runtime = ctypes.CDLL(str(folder() / "libascendcl.so"))
comm = ctypes.c_void_p()
print(runtime.HcclCommInitRootInfo(2, b"/npu_sim_test_alone", 0, ctypes.byref(comm)))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"NPU_SIM_HCCL_TIMEOUT_S": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    Path("/dev/shm/npu_sim_test_alone").unlink(missing_ok=True)
    assert done.stdout.split() == ["1"]
    assert "rank 0 of 2 waited in vain" in done.stderr
