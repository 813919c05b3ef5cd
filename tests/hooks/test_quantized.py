"""A quantized target is checked before it is loaded, and what a head should know is said."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.zoo import SPECS, W8A8
from vllm_ascend_spec.devices import cpu
from vllm_ascend_spec.errors import CheckpointError
from vllm_ascend_spec.hooks import quantized
from vllm_ascend_spec.quantization.description import NAME

ROTATED = {"quarot": {"rotation_map": {"global_rotation": "optional/quarot.safetensors"}}}


def asked(folder: str) -> Any:
    return SimpleNamespace(model=folder, quantization="ascend", load_format="auto")


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is logged, on a CPU."""
    found: list[str] = []
    monkeypatch.setattr(quantized, "log_once", lambda _level, text: found.append(text))
    monkeypatch.setattr(quantized, "find_device", lambda: cpu.DEVICE)
    return found


@pytest.fixture
def rotated(tmp_path: Path) -> str:
    folder = Path(shutil.copytree(W8A8, tmp_path / "rotated"))
    described = json.loads((folder / NAME).read_text())
    (folder / NAME).write_text(json.dumps({**described, "optional": ROTATED}))
    return str(folder)


@pytest.mark.parametrize("method", ["eagle", "eagle3", "medusa", "hybrid"])
def test_heads_for_rotated_states_are_warned_of(
    method: str, rotated: str, lines: list[str]
) -> None:
    quantized.check(asked(rotated), SPECS[method])
    (line,) = lines
    assert f"method {method!r} will have hardly any drafts accepted" in line
    assert "optional.quarot" in line


HYBRID_OF_MTP = {**SPECS["mtp"], "method": "hybrid", "hybrid_model_method": "mtp"}


@pytest.mark.parametrize(
    "spec", [None, SPECS["ngram"], SPECS["draft_model"], SPECS["mtp"], HYBRID_OF_MTP]
)
def test_what_drafts_without_them_is_not(spec: Any, rotated: str, lines: list[str]) -> None:
    quantized.check(asked(rotated), spec)
    quantized.check(asked(W8A8), SPECS["eagle"])
    assert lines == []


def test_a_wrong_description_is_found_before_anything_is_loaded(
    rotated: str, lines: list[str]
) -> None:
    (Path(rotated) / NAME).write_text("{}")
    with pytest.raises(CheckpointError, match=f"{NAME} names no weight"):
        quantized.check(asked(rotated), None)
