"""Small engines on the zoo's checkpoints, and how their answers are compared."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.zoo import TARGET

ENGINE: dict[str, Any] = {
    "model": TARGET,
    "dtype": "float32",
    "max_model_len": 512,
    "max_num_seqs": 8,
    "enforce_eager": True,
    "disable_log_stats": False,
    "seed": 0,
    # About 9,000 tokens. The environment variable VLLM_CPU_KVCACHE_SPACE knows whole GiB only.
    "kv_cache_memory_bytes": 128 << 20,
}


def with_fixed_length(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return an engine's arguments with K fixed, unless they say who chooses it.

    By default K follows from how long steps take, so what is counted would differ from run to run.
    """
    additional = dict(arguments.get("additional_config") or {})
    section = {"draft_length": "fixed", **additional.get("ascend_spec", {})}
    return {**arguments, "additional_config": {**additional, "ascend_spec": section}}


def inspect_models_here() -> None:
    """Let vLLM look at classes of models in this process, which imports them in any case.

    It starts a process for each class that it sees first on a machine, for seven seconds, so that
    the engine's own need not touch CUDA before it starts.
    """
    from vllm.model_executor.models import registry

    registry._run_in_subprocess = lambda inspect: inspect()


def session_folder(factory: pytest.TempPathFactory, name: str) -> Path:
    """Return the path of a folder of all processes of a session."""
    base = factory.getbasetemp()
    # pytest-xdist gives each of its processes a folder inside the session's.
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name


# Of an answer, unless a test says otherwise.
MAX_TOKENS = 48
MakeEngine = Callable[..., Any]
Generate = Callable[..., list[Any]]


def token_ids(outputs: Sequence[Any]) -> list[list[int]]:
    """Return the token ids of some outputs."""
    return [list(output.token_ids) for output in outputs]


def assert_same(actual: list[list[int]], expected: list[list[int]]) -> None:
    """Compare token by token and show where the first difference of each answer is."""
    different = {
        index: next(
            (place for place, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b),
            min(len(ours), len(theirs)),
        )
        for index, (ours, theirs) in enumerate(zip(actual, expected, strict=True))
        if ours != theirs
    }
    assert not different, f"answers that differ, and from which token on: {different}"
