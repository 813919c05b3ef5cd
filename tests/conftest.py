"""Shared by all tests: a small, repeatable process."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

from tests.order import longest_first
from vllm_ascend_spec.bench.local_engine import ENVIRONMENT

# Before anything imports torch or vLLM, which read these once.
for name, value in (
    ("OMP_NUM_THREADS", "1"),
    ("VLLM_ENABLE_V1_MULTIPROCESSING", "0"),
):
    os.environ.setdefault(name, value)

# In whole GiB for each engine, and these are many: engines.py says how much.
os.environ.pop("VLLM_CPU_KVCACHE_SPACE", None)

# Offline, a model of a hub that is not on this machine is refused. Tests of that say so themselves.
for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
    os.environ.pop(name, None)

settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
settings.load_profile("repeatable")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse names of tests that differ from run to run: processes could not share them out."""
    if changing := [item.nodeid for item in items if " at 0x" in item.nodeid]:
        raise pytest.UsageError(f"names of tests with an address in memory: {changing[:3]}")
    longest_first(items)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[Any]:
    """Look for no garbage among thousands of tests, now and each time that an engine starts."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Share tests out as scheduling.py says, unless ``--dist`` says otherwise."""
    if config.getvalue("dist") != "load":  # which ``-n`` alone means
        return None
    from tests.scheduling import ByFile

    return ByFile(config, log)


@pytest.fixture(autouse=True)
def _variables_are_read_anew() -> None:
    """Let a test set vLLM's environment variables: an engine of an earlier one has cached them."""
    if envs := sys.modules.get("vllm.envs"):
        envs.disable_envs_cache()


@pytest.fixture(autouse=True)
def _benchmarks_leave_no_variables() -> Iterator[None]:
    """Undo what a benchmark in this process sets: later engines would take a GiB of cache each."""
    before = {name: os.environ.get(name) for name in ENVIRONMENT}
    yield
    for name, value in before.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value


@pytest.fixture(autouse=True)
def _no_hub_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let names of models be names: where no hub can be reached, each would wait for one."""
    if known := sys.modules.get("vllm_ascend_spec.config.known_to_vllm"):
        monkeypatch.setattr(known, "_fetched", lambda *_: None)


@atexit.register
def end_on_the_summary() -> None:
    """Keep pytest's summary the last line: Triton's bindings report leaks as the process ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
