"""The CPU platform."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import vllm  # noqa: F401 - it looks for a platform while it is imported

from vllm_ascend_spec.config.resolved import ATTRIBUTE
from vllm_ascend_spec.devices import cpu as cpu_device
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.platform.cpu import (
    BIND,
    SIMULATED_NODES,
    avoid_amx_attention,
    can_run_in_the_engine,
    check_states,
    let_workers_share_a_node,
)


@pytest.mark.parametrize(
    ("world_size", "threads", "expected"),
    [(1, "1", True), (1, "", False), (1, None, False), (2, "1", False)],
)
def test_a_worker_shares_the_engines_process_only_if_nothing_is_to_be_set_up(
    world_size: int, threads: str | None, expected: bool, monkeypatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if threads is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
    config = SimpleNamespace(parallel_config=SimpleNamespace(world_size=world_size))
    assert can_run_in_the_engine(config) is expected


def test_prompts_are_scheduled_whole_where_vllm_turns_chunks_off() -> None:
    """It does so for multi-head latent attention that is not in bfloat16."""
    from vllm.engine.arg_utils import EngineArgs

    made = EngineArgs(
        model="examples/zoo/target-deepseek",
        dtype="float32",
        max_num_batched_tokens=64,
        speculative_config={"method": "ngram", "num_speculative_tokens": 3},
    ).create_engine_config()
    found = made.scheduler_config
    if not found.enable_chunked_prefill:
        assert found.max_num_scheduled_tokens == found.max_num_batched_tokens > 64


@pytest.mark.parametrize(
    ("workers", "nodes", "given", "expected"),
    [
        (1, [0], {}, None),
        (2, [0, 1], {}, None),
        (2, [0], {}, "nobind"),
        (4, [0], {}, "nobind"),
        (4, [0], {BIND: "0|1|2|3"}, "0|1|2|3"),
        (2, [0], {SIMULATED_NODES: "1"}, None),
    ],
)
def test_threads_are_bound_where_each_worker_has_a_memory_node(
    workers: int,
    nodes: list[int],
    given: dict[str, str],
    expected: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from vllm import envs
    from vllm.utils import cpu_resource_utils

    for name in (BIND, SIMULATED_NODES):
        monkeypatch.setenv(name, "")  # so that it is put back afterwards
        monkeypatch.delenv(name)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(cpu_resource_utils, "get_visible_memory_node", lambda: nodes)
    config: Any = SimpleNamespace(parallel_config=SimpleNamespace(local_world_size=workers))
    envs.enable_envs_cache()  # as an engine does that starts
    try:
        let_workers_share_a_node(config)
        assert os.environ.get(BIND) == expected
        assert (expected or "auto") == envs.VLLM_CPU_OMP_THREADS_BIND
    finally:
        envs.disable_envs_cache()


def config_with(is_hybrid: bool, is_attention_free: bool) -> Any:
    """Return an engine's configuration as vLLM has it of a hub's model."""
    spec = SimpleNamespace()
    setattr(spec, ATTRIBUTE, SimpleNamespace(method="ngram"))
    model = SimpleNamespace(
        is_hybrid=is_hybrid, is_attention_free=is_attention_free, architecture="SomeForCausalLM"
    )
    return SimpleNamespace(speculative_config=spec, model_config=model)


@pytest.mark.parametrize("kind", [(True, False), (False, True)])
def test_targets_of_a_hub_that_keep_a_state_are_refused(kind: tuple[bool, bool]) -> None:
    with pytest.raises(ConfigError, match="on a CPU with a target of SomeForCausalLM"):
        check_states(config_with(*kind))


def test_gated_delta_net_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_device, "NO_GATED_DELTA_NET_ON_CPU", None)
    config = config_with(True, False)
    config.model_config.architecture = "Qwen3NextForCausalLM"
    check_states(config)


def test_other_targets_are_taken() -> None:
    check_states(config_with(False, False))
    without = config_with(True, False)
    without.speculative_config = None
    check_states(without)


@pytest.mark.parametrize(
    ("dtype", "use_mla", "given", "expected"),
    [
        (torch.float32, True, None, "CPU_MLA"),
        (torch.float16, True, None, "CPU_MLA"),
        (torch.bfloat16, True, None, None),
        (torch.float32, False, None, None),
        (torch.float32, True, "AMX_MLA", "AMX_MLA"),
    ],
)
def test_amx_attention_is_left_to_the_dtype_that_it_takes(
    dtype: torch.dtype, use_mla: bool, given: str | None, expected: str | None
) -> None:
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    backend = AttentionBackendEnum[given] if given else None
    config: Any = SimpleNamespace(
        model_config=SimpleNamespace(dtype=dtype, use_mla=use_mla),
        attention_config=SimpleNamespace(backend=backend),
    )
    avoid_amx_attention(config)
    found = config.attention_config.backend
    assert (found and found.name) == expected
