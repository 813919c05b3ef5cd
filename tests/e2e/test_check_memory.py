"""The tokens that ``check`` says fit in the KV cache are those that an engine finds room for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.engines import ENGINE, MakeEngine
from tests.zoo import SPECS, target_of
from vllm_ascend_spec.cli.main import main


def flags_of(values: dict[str, Any]) -> list[str]:
    """Return an engine's options as flags of ``vllm serve``, but for the model."""
    words = []
    for name, value in values.items():
        flag = name.replace("_", "-")
        if value is True or value is False:
            words.append(f"--{flag}" if value else f"--no-{flag}")
        elif name != "model":
            words += [f"--{flag}", value if isinstance(value, str) else json.dumps(value)]
    return words


@pytest.mark.parametrize(
    "method",
    [
        "eagle",
        pytest.param("draft_model", marks=pytest.mark.nightly),
        pytest.param("mtp", marks=pytest.mark.nightly),
        pytest.param("ngram", marks=pytest.mark.nightly),
    ],
)
def test_as_many_tokens_fit(
    method: str,
    make_engine: MakeEngine,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)
    spec = SPECS[method]
    values = {k: v for k, v in ENGINE.items() if k not in ("model", "disable_log_stats")}
    words = [*flags_of(values), "--speculative-config", json.dumps(spec)]
    assert main(["check", "--json", target_of(spec), *words]) == 0
    memory = json.loads(capfd.readouterr().out)["memory"]
    assert memory["kv_space_bytes"] == ENGINE["kv_cache_memory_bytes"]
    assert memory["kv_space_from"] == "--kv-cache-memory-bytes"
    engine = make_engine(spec)
    cache = engine.llm_engine.vllm_config.cache_config
    assert memory["kv_tokens"] == cache.num_gpu_blocks * cache.block_size
