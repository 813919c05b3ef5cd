"""Gemma 4's assistant, which is a model of its own, is checked before anything is loaded."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.config.checkpoints import edit_config, edit_tensors
from tests.zoo import ASSISTANT, GEMMA4, TARGET
from vllm_ascend_spec.checkpoint.draft import Draft
from vllm_ascend_spec.config.detect import detect
from vllm_ascend_spec.errors import CheckpointError, ConfigError
from vllm_ascend_spec.hooks.preflight import resolve_engine
from vllm_ascend_spec.methods.mtp import ASSISTANT as MODEL_TYPE
from vllm_ascend_spec.methods.mtp import checkpoint_assistant, drafter
from vllm_ascend_spec.methods.mtp.checkpoint import check_mtp
from vllm_ascend_spec.methods.mtp.drafter import AssistantMixin
from vllm_ascend_spec.methods.registry import BUILT_IN

Change = Callable[[Path], object]


SECTION = "additional_config.ascend_spec.draft_window"


def refusal(target: str, **spec: Any) -> str:
    with pytest.raises(CheckpointError) as raised:
        resolve_engine(target, {**ASSISTANT, **spec})
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize("method", ["mtp", "gemma4_mtp"])
def test_the_zoos_passes(method: str) -> None:
    assert resolve_engine(GEMMA4, {**ASSISTANT, "method": method}).method == "mtp"


def test_it_is_detected() -> None:
    found = detect(ASSISTANT["model"])
    assert found.method == "mtp"
    assert "'gemma4_assistant'" in found.source


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda folder: edit_config(folder, backbone_hidden_size=512),
            "its backbone_hidden_size is 512, the target's hidden_size is 256",
        ),
        (
            lambda folder: edit_tensors(folder, lambda found: found.pop("pre_projection.weight")),
            "has no tensor pre_projection.weight",
        ),
    ],
)
def test_what_does_not_fit_is_named(change: Change, words: str, tmp_path: Path) -> None:
    folder = tmp_path / "assistant"
    shutil.copytree(ASSISTANT["model"], folder)
    change(folder)
    assert words in refusal(GEMMA4, model=str(folder))


def test_it_drafts_for_no_other_target(tmp_path: Path) -> None:
    folder = tmp_path / "assistant"
    shutil.copytree(ASSISTANT["model"], folder)
    edit_config(folder, backbone_hidden_size=64)
    assert "the target's hidden_size" in refusal(TARGET, model=str(folder))


def test_it_is_no_target() -> None:
    with pytest.raises(CheckpointError, match="drafts for a Gemma 4"):
        resolve_engine(ASSISTANT["model"], {"method": "mtp", "num_speculative_tokens": 3})


@pytest.mark.parametrize("window", [64, "auto"])
@pytest.mark.parametrize("method", [{}, {"method": "hybrid", "hybrid_model_method": "mtp"}])
def test_a_window_is_refused(method: dict[str, Any], window: int | str) -> None:
    """With one of 64 tokens the zoo's yields 2.06 instead of 3.42 tokens per step."""
    options = {"ascend_spec": {"draft_window": window}}
    with pytest.raises(ConfigError, match="an assistant of Gemma 4, which attends") as raised:
        resolve_engine(GEMMA4, ASSISTANT | method, options)
    assert str(raised.value).startswith(f"{SECTION}={window!r}")


@pytest.mark.parametrize(("size", "chooses"), [(64, False), (None, True)])
def test_a_window_is_refused_at_the_start_too(size: int | None, chooses: bool) -> None:
    """As with a hub's name, whose folder was not there."""
    from vllm_ascend_spec.methods.drafter import drafter_class

    bases = BUILT_IN["mtp"].drafters_by_type[MODEL_TYPE]["vllm"]
    made: Any = object.__new__(drafter_class("mtp", "vllm", bases))
    made.window, made.chooses_window = SimpleNamespace(size=size), chooses
    with pytest.raises(ConfigError, match="an assistant of Gemma 4"):
        made.require_possible()
    made.window, made.chooses_window = SimpleNamespace(size=None), False
    made.require_possible()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_best_tokens_are_captured_on_cuda_alone(device: str) -> None:
    """vLLM captures them everywhere, which fails where there are no such graphs."""
    asked = []

    class Stock:
        def _setup_centroids_cuda_graphs(self) -> None:
            asked.append(device)

    made: Any = type("Made", (AssistantMixin, Stock), {})()
    made.device = SimpleNamespace(type=device)
    made._setup_centroids_cuda_graphs()
    assert asked == (["cuda"] if device == "cuda" else [])


def test_vllm_ascend_without_its_proposer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """0.23: by ``check``, and at the start where the folder was not there."""
    reason = "vllm-ascend 0.23, which has no proposer for it"
    monkeypatch.setattr(checkpoint_assistant, "NO_ASSISTANT_ON_NPU", reason)
    monkeypatch.setattr(drafter, "NO_ASSISTANT_ON_NPU", reason)
    draft = Draft("speculative_config.model", ASSISTANT["model"], Path(ASSISTANT["model"]))
    check_mtp(replace(draft, family="vllm"))
    with pytest.raises(CheckpointError, match=reason):
        check_mtp(replace(draft, family="ascend"))
    engine: Any = SimpleNamespace(speculation=SimpleNamespace(family="ascend"))
    with pytest.raises(ConfigError, match=reason):
        AssistantMixin.create(engine)
