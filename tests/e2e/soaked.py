"""What a server has to be after a soak: healthy, idle, and no bigger than it was."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.soak import Soak
from tests.e2e.soak_kinds import DRAWN, KINDS, Reference
from tests.e2e.usage import memory_of, more_descriptors, told, uses_of
from tests.engines import ENGINE
from vllm_ascend_spec.bench.client import ClientLoad, run_load
from vllm_ascend_spec.bench.server import Server

# After the warm-up, when everything has been used once. What grows for longer is kept small: a
# cache of keys and values that is soon full, and none of oneDNN's compiled kernels, which otherwise
# keeps up to 1024 of them, for every number of rows that a step had.
MOST_GROWTH = 50_000_000
STEADY = ("--kv-cache-memory-bytes", str(ENGINE["kv_cache_memory_bytes"]))
NO_KERNEL_CACHE = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "0"}
# Seconds in which what has ended is gone. Nobody waits for them where it is.
MOST_WAITED = 60


def references_of(expect: Callable[..., list[Any]], prompts: Sequence[str]) -> list[Reference]:
    """Return what engines without speculation answer to prompts."""
    return [
        Reference(prompt, list(greedy.token_ids), greedy.text, list(drawn.token_ids))
        for prompt, greedy, drawn in zip(
            prompts, expect(prompts), expect(prompts, **DRAWN), strict=True
        )
    ]


def assert_soaked(server: Server, soak: Soak, warm_up: float, seconds: float) -> None:
    """Soak a server: no error, no wrong answer, nothing left behind.

    Args:
        server: which.
        soak: its clients.
        warm_up: seconds in which it may grow.
        seconds: those after them.
    """
    soak.run(warm_up, seed=0)
    wait_until_idle(server, soak.model)
    before, warmed_up = uses_of(server.pid), sum(soak.done.values())
    soak.run(seconds, seed=1)
    wait_until_idle(server, soak.model)
    after = uses_of(server.pid)
    print(f"{warmed_up} requests, then {sum(soak.done.values()) - warmed_up}: {dict(soak.done)}")
    print(told(before, after))
    assert not soak.problems, f"{soak.problems[:5]}\n{server.log_tail()}"
    assert soak.done.keys() == KINDS.keys()
    assert memory_of(after) - memory_of(before) <= MOST_GROWTH, told(before, after)
    for _ in range(MOST_WAITED):  # a connection is closed a little after its last answer
        if not (more := more_descriptors(before, uses_of(server.pid))):
            break
        time.sleep(1)
    assert more == {}
    assert server.is_healthy()
    assert "Traceback" not in server.log_text()


def gauge(server: Server, name: str) -> float:
    """Return one of the server's gauges."""
    families = text_string_to_metric_families(server.metrics())
    (family,) = (family for family in families if family.name == name)
    return sum(sample.value for sample in family.samples)


def wait_until_idle(server: Server, model: str) -> None:
    """Wait until the requests of clients that left are gone too, and what they held."""
    names = [f"vllm:{name}" for name in ("num_requests_running", "num_requests_waiting")]
    for _ in range(MOST_WAITED):
        if not any(gauge(server, name) for name in names):
            break
        time.sleep(1)
    # The gauges are set by steps; one more request makes a last one.
    run_load(server.url, model, ClientLoad(["x"], 1))
    left = {name: gauge(server, name) for name in (*names, "vllm:kv_cache_usage_perc")}
    assert left == dict.fromkeys(left, 0)
