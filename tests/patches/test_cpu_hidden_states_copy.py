"""Hidden states are copied out of the cache on a CPU."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from vllm.distributed.kv_transfer.kv_connector.v1 import example_hidden_states_connector as module
from vllm.platforms import current_platform

from tests.marks import requires_cpu_build
from tests.patches.cases import TakeOut
from vllm_ascend_spec.patches import cpu_hidden_states_copy as patch

pytestmark = [
    requires_cpu_build,
    pytest.mark.skipif(torch.cuda.is_available(), reason="pinned memory is there with a GPU"),
]
Connector = module.ExampleHiddenStatesConnector
BLOCKS, LAYERS, BLOCK, WIDTH = 3, 2, 4, 5


def connector(folder: Path) -> Any:
    """Return what the connector's method reads of the connector, after an engine has started."""
    current_platform.import_kernels()
    import vllm.v1.worker.cpu_worker  # noqa: F401 - which puts fakes in torch.cuda

    cache = torch.arange(BLOCKS * LAYERS * BLOCK * WIDTH, dtype=torch.float32)
    return SimpleNamespace(
        _is_tp_rank_zero=True,
        _kv_cache=cache.view(BLOCKS, LAYERS, BLOCK, WIDTH),
        _block_size=BLOCK,
        _get_copy_stream=torch.cuda.Stream,
        _req_futures={},
        _lock_fds={},
        _req_copy_events={},
        use_lock=False,
        _executor=ThreadPoolExecutor(1),
        _write_tensors=Connector._write_tensors,
        _on_write_done=lambda *_: None,
    )


def save(folder: Path) -> dict[str, torch.Tensor]:
    """Let the connector save six tokens that lie in blocks 2 and 0."""
    own = connector(folder)
    tokens = torch.arange(6)
    path = str(folder / "states.safetensors")
    Connector._submit_async_write(own, module.PendingSave("r", path, tokens, [2, 0]))
    own._executor.shutdown(wait=True)
    expected = own._kv_cache.transpose(1, 2)[[2, 0]].flatten(0, 1)[:6]
    found = load_file(path)
    assert torch.equal(found["hidden_states"], expected)
    assert torch.equal(found["token_ids"], tokens)
    return found


def test_stock_fault_and_patch(take_out: TakeOut, tmp_path: Path) -> None:
    take_out(patch)
    with pytest.raises(RuntimeError, match="pin"):
        save(tmp_path)
    patch.apply()
    assert save(tmp_path)["hidden_states"].shape == (6, LAYERS, WIDTH)
    patch.revert()
    with pytest.raises(RuntimeError, match="pin"):
        save(tmp_path)


def test_the_rest_of_torch_is_as_it_is(take_out: TakeOut) -> None:
    take_out(patch)
    patch.apply()
    assert module.torch.arange is torch.arange
    assert module.torch.cuda is torch.cuda
