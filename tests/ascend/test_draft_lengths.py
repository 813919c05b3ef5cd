"""Later draft steps see no rejected token, where the host can know what was accepted."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch


def without_rejected(*given: Any) -> Any:
    from vllm_ascend_spec.methods.loops.ascend import rejected

    return rejected.without_rejected(*given)


@pytest.fixture
def make_proposer(monkeypatch: pytest.MonkeyPatch) -> Any:
    from vllm_ascend_spec.methods.loops.ascend import rejected

    groups = SimpleNamespace(world_size=1)
    monkeypatch.setattr(rejected, "get_pp_group", lambda: groups)

    def make(new_slots: int = 0, *, is_async: bool = False, pipeline: int = 1) -> Any:
        groups.world_size = pipeline
        proposer = SimpleNamespace()
        proposer.use_async_scheduling = is_async
        proposer.net_num_new_slots_per_request = new_slots
        proposer.shallow_copy_metadata = copy.copy
        # Tokens of each request, the one sampled in this step included.
        counts = np.array([11, 21, 31, 99], dtype=np.int32)
        proposer.runner = SimpleNamespace(input_batch=SimpleNamespace(num_tokens_no_spec=counts))
        return proposer

    return make


def make_metadata(new_slots: int = 0) -> Any:
    # All drafts accepted, two rejected, a prompt that is not read to its end; and padding.
    lengths = torch.tensor([10 + new_slots, 22 + new_slots, 16 + new_slots, 0], dtype=torch.int32)
    return SimpleNamespace(seq_lens_cpu=lengths, _seq_lens_cpu=lengths.clone())


@pytest.mark.parametrize("new_slots", [0, 1])
def test_rejected_tokens_are_left_out(make_proposer: Any, new_slots: int) -> None:
    """EAGLE has not read the token sampled last, a draft model has."""
    metadata = make_metadata(new_slots)
    cut = without_rejected(make_proposer(new_slots), metadata, 3)
    expected = [10 + new_slots, 20 + new_slots, 16 + new_slots, 0]
    assert cut.seq_lens_cpu.tolist() == cut._seq_lens_cpu.tolist() == expected
    # The runner goes on with its own.
    assert metadata.seq_lens_cpu.tolist()[1] == 22 + new_slots


def test_lengths_that_the_metadata_lacks_stay_out(make_proposer: Any) -> None:
    metadata = make_metadata()
    metadata.seq_lens_cpu = None
    cut = without_rejected(make_proposer(), metadata, 3)
    assert cut.seq_lens_cpu is None
    assert cut._seq_lens_cpu.tolist() == [10, 20, 16, 0]


@pytest.mark.parametrize("how", [{"is_async": True}, {"pipeline": 2}])
def test_lengths_are_vllm_ascends_where_the_host_does_not_know(
    make_proposer: Any, how: dict[str, Any]
) -> None:
    metadata = make_metadata()
    assert without_rejected(make_proposer(**how), metadata, 3) is metadata
