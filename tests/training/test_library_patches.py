"""Patches of the trainer's library: each corrects a fault that the stock one shows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

pytestmark = [
    pytest.mark.skipif(find_spec("speculators") is None, reason="needs speculators"),
    pytest.mark.skipif(torch.accelerator.is_available(), reason="is about a CPU alone"),
]

PATCHES = "vllm_ascend_spec.training.library.patches"


@pytest.fixture
def patch(request: pytest.FixtureRequest) -> Any:
    """The patch that a test names, taken back at its end."""
    import importlib

    module = importlib.import_module(f"{PATCHES}.{request.param}")
    yield module
    module.revert()


def patched(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("patch", [name], indirect=True)


@patched("cpu_step_timer")
def test_a_step_is_timed(patch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from speculators.train.trainer import _StepTimer

    # An engine on a CPU has replaced PyTorch's own, if the process had one.
    stock = torch._C._accelerator_synchronizeDevice
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda: stock(0))
    timer = _StepTimer(enabled=True)
    with pytest.raises(RuntimeError, match="accelerator"):
        timer.mark("fwd")
    with pytest.raises(RuntimeError, match="accelerator"):
        timer.now()
    patch.apply()
    timer.mark("fwd")
    assert timer.now() is not None
    timer.reset(enabled=False)
    assert timer.now() is None


@patched("cpu_checkpoint_device")
def test_a_checkpoint_is_read_onto_the_cpu(patch: Any) -> None:
    from speculators.train import checkpointer

    assert checkpointer.get_current_device() == "cuda:0"
    patch.apply()
    assert checkpointer.get_current_device() == "cpu"


# The library is imported once; the processes are copies with what torchrun gives them.
JOIN = """
import json, os, socket, traceback
from speculators.train import cli, distributed
import torch, torch.distributed as dist
from vllm_ascend_spec.training.library.patches import cpu_processes

def join():
    cli.maybe_setup_distributed()
    summed = torch.tensor(float(distributed.get_rank() + 1))
    dist.all_reduce(summed, group=distributed.get_dp_group())
    assert summed == 3 and distributed.get_dp_size() == 2 and distributed.is_distributed()
    cli.maybe_destroy_distributed()

def copy(rank):
    child = os.fork()
    if child == 0:
        os.environ.update(RANK=rank, LOCAL_RANK=rank)
        try:
            join()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return child

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = str(free.getsockname()[1])
os.environ.update(WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
codes = {}
for which in ("stock", "patched"):
    if which == "patched":
        cpu_processes.apply()
    children = [copy(rank) for rank in ("0", "1")]
    codes[which] = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
print(json.dumps(codes))
"""


def test_processes_train_together(tmp_path: Path) -> None:
    """As torchrun starts them; by night test_fit.py has it start them."""
    program = tmp_path / "join.py"
    program.write_text(JOIN)
    done = subprocess.run(
        [sys.executable, str(program)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    codes = json.loads(done.stdout.splitlines()[-1])
    assert codes == {"stock": [1, 1], "patched": [0, 0]}, done.stderr
    assert done.stderr.count("accelerator") >= 2


def test_the_trainer_computes_on_the_cpu() -> None:
    from speculators.train.trainer import Trainer

    from vllm_ascend_spec.training.library.patches.cpu_trainer import CpuTrainer

    class Stock:
        """The two lines of the library's constructor, and where it goes on."""

        def __init__(self) -> None:
            found = torch.accelerator.current_accelerator()
            self.local_rank: Any = 0
            self.device_type = found.type if found is not None else "cuda"
            self.setup_trainer()

        def setup_trainer(self) -> None:
            """Go on."""

    class Ours(CpuTrainer, Stock):
        """As our trainer has them."""

    stock, ours = Stock(), Ours()
    assert 'else "cuda"' in Path(sys.modules[Trainer.__module__].__file__ or "").read_text()
    assert stock.device_type == "cuda"
    with pytest.raises((RuntimeError, AssertionError)):
        torch.zeros(1).to(stock.local_rank)
    assert ours.device_type == "cpu"
    assert torch.zeros(1).to(ours.local_rank).device.type == "cpu"
