"""A draft model's options against the target and its engine."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.config.checkpoints import write_checkpoint
from vllm_ascend_spec.config.engine import EngineOptions, cudagraph_mode_of
from vllm_ascend_spec.devices import cpu
from vllm_ascend_spec.errors import CheckpointError, ConfigError
from vllm_ascend_spec.hooks.preflight import resolve_engine

# A device on which drafts of this method may be left whole.
WHOLE = replace(cpu.DEVICE, whole_drafts=frozenset({"draft_model"}))


@pytest.fixture
def check(tmp_path: Path) -> Any:
    """Return a function that checks a draft model with some options, and resolves it."""
    folders = {name: write_checkpoint(tmp_path / name) for name in ("target", "draft")}
    for name, longest in (("target", 1024), ("draft", 512)):
        file = folders[name] / "config.json"
        config = {**json.loads(file.read_text()), "max_position_embeddings": longest}
        file.write_text(json.dumps(config))

    def check(engine: EngineOptions | None = None, **options: Any) -> Any:
        spec = {"method": "draft_model", "model": str(folders["draft"])}
        spec |= {"num_speculative_tokens": 3, **options}
        return resolve_engine(str(folders["target"]), spec, engine=engine)

    return check


@pytest.mark.parametrize(
    ("size", "device", "split"),
    [
        (4, cpu.DEVICE, 4),
        # Guides say 1 for any device; the draft is split all the same, and a warning says so.
        (1, cpu.DEVICE, 4),
        (1, None, 4),
        (1, WHOLE, 1),
    ],
)
def test_draft_is_split_as_the_target_or_left_whole_where_that_is_possible(
    check: Any, size: int, device: Any, split: int
) -> None:
    alone = check(draft_tensor_parallel_size=1)
    assert alone.options["draft_tensor_parallel_size"] == 1
    assert not alone.warnings
    engine = EngineOptions(tensor_parallel_size=4, device=device)
    found = check(engine, draft_tensor_parallel_size=size)
    assert found.options["draft_tensor_parallel_size"] == split
    about = [w for w in found.warnings if "draft_tensor_parallel_size=1 has no effect" in w]
    assert len(about) == (size != split)


@pytest.mark.parametrize("device", [cpu.DEVICE, None, WHOLE])
def test_draft_is_split_over_no_other_number(check: Any, device: Any) -> None:
    engine = EngineOptions(tensor_parallel_size=4, device=device)
    with pytest.raises(ConfigError, match="valid: 1, or 4, the target's"):
        check(engine, draft_tensor_parallel_size=2)


def test_requests_with_drafts_are_as_long_as_draft_and_target_allow(
    check: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(max_model_len=512)
    check(EngineOptions(max_model_len=-1), max_model_len=512)
    with pytest.raises(ConfigError, match="up to 512, the draft's max_position_embeddings"):
        check(max_model_len=513)
    with pytest.raises(ConfigError, match="up to 256, the target's --max-model-len"):
        check(EngineOptions(max_model_len=256), max_model_len=257)
    # vLLM's own switch.
    monkeypatch.setenv("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "1")
    check(max_model_len=513)
    with pytest.raises(ConfigError, match="up to 1024, the target's max_position_embeddings"):
        check(max_model_len=1025)


def test_drafts_of_another_vocabulary_are_greedy(check: Any) -> None:
    check(use_heterogeneous_vocab=True)
    with pytest.raises(ConfigError, match="not possible with use_heterogeneous_vocab"):
        check(use_heterogeneous_vocab=True, draft_sample_method="probabilistic")


@pytest.mark.parametrize("name", ["x" * 300, "a/" * 3000 + "b", "~nosuchuser/x", "~/x", "", "\0"])
def test_names_that_nothing_can_look_up_are_refused(check: Any, name: str) -> None:
    with pytest.raises(CheckpointError) as raised:
        check(model=name)
    assert raised.value.option == "speculative_config.model"
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize(
    ("compilation", "mode"),
    [
        (None, None),
        ({}, None),
        ({"cudagraph_mode": "full_decode_only"}, "FULL_DECODE_ONLY"),
        ({"mode": 0, "cudagraph_mode": "FULL"}, "NONE"),
        ({"mode": "none"}, "NONE"),
        ({"mode": 3}, None),
    ],
)
def test_mode_of_graphs_is_read_as_given(compilation: Any, mode: str | None) -> None:
    from vllm.config import CompilationConfig

    assert cudagraph_mode_of(compilation) == mode
    if compilation:
        assert cudagraph_mode_of(CompilationConfig(**compilation)) == mode
