"""Without a cache that can be written to there is no traceback about it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from vllm.model_executor.models.registry import _LazyRegisteredModel, _ModelInfo

from tests.patches.cases import TakeOut
from vllm_ascend_spec.patches import model_info_cache as patch

MODEL = _LazyRegisteredModel("vllm.model_executor.models.llama", "LlamaForCausalLM")


@pytest.fixture
def info() -> Any:
    """Any; only that it is a record matters."""
    from dataclasses import fields

    return _ModelInfo(**{field.name: False for field in fields(_ModelInfo)})


@pytest.fixture
def tracebacks(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that tells how many tracebacks have been logged."""
    from vllm.model_executor.models import registry

    monkeypatch.setattr(registry.logger, "propagate", True)
    monkeypatch.setattr(logging.getLogger("vllm"), "propagate", True)
    return lambda: sum(record.exc_info is not None for record in caplog.records)


def test_stock_fault_and_patch(
    tmp_path: Path,
    info: Any,
    tracebacks: Any,
    take_out: TakeOut,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    take_out(patch)
    (tmp_path / "file").touch()
    monkeypatch.setenv("VLLM_CACHE_ROOT", str(tmp_path / "file"))
    MODEL._save_modelinfo_to_cache(info, "0")
    assert tracebacks() == 1
    patch.apply()
    MODEL._save_modelinfo_to_cache(info, "0")
    assert tracebacks() == 1
    monkeypatch.setenv("VLLM_CACHE_ROOT", str(tmp_path))
    MODEL._save_modelinfo_to_cache(info, "0")
    assert [file.suffix for file in (tmp_path / "modelinfos").iterdir()] == [".json"]
