"""Two ranks gather rows of different numbers, and get back the sums of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.marks import requires_cpu_build
from tests.patches import exchange_rank
from tests.patches.cases import TakeOut
from tests.patches.exchange_rank import RANKS, SIZES, rows
from vllm_ascend_spec.patches.upstream import cpu_expert_exchange as patch

pytestmark = requires_cpu_build


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each rank got."""
    store = tmp_path_factory.mktemp("store") / "file"
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", exchange_rank.__name__, str(rank), str(store)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
            text=True,
        )
        for rank in range(RANKS)
    ]
    outputs = [rank.communicate(timeout=300) for rank in ranks]
    codes = [rank.returncode for rank in ranks]
    assert codes == [0] * RANKS, f"{codes}: {outputs}"
    return [json.loads(said.splitlines()[-1]) for said, _ in outputs]


def test_all_rows_come_to_each_rank(results: list[dict[str, Any]]) -> None:
    everything = torch.cat([rows(rank, size) for rank, size in enumerate(SIZES)])
    evenly = torch.cat([rows(rank, 2) for rank in range(RANKS)])
    for found in results:
        assert found["gathered"] == everything.tolist()
        assert found["gathered as"] == ["torch.float32", "torch.int32", everything.int().tolist()]
        assert found["gathered evenly"] == evenly.tolist()


def test_the_sums_go_back_to_whose_they_are(results: list[dict[str, Any]]) -> None:
    total = 3 * rows(0, sum(SIZES))  # once of rank 0, twice of rank 1
    for rank, own in enumerate(total.split(SIZES)):
        assert results[rank]["added up"] == own.tolist()
        assert results[rank]["added up evenly"] == total.chunk(RANKS)[rank].tolist()
        assert results[rank]["left as it was"]


def test_stock_fault_and_patch(take_out: TakeOut) -> None:
    from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator

    take_out(patch)
    for missing in (CpuCommunicator.all_gatherv, CpuCommunicator.reduce_scatterv):
        with pytest.raises(NotImplementedError):
            missing(None, torch.zeros(1))
    patch.apply()
    assert CpuCommunicator.all_gatherv is patch.all_gatherv
    patch.revert()
    assert "all_gatherv" not in vars(CpuCommunicator)
