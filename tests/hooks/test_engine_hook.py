"""Checks before any engine is built."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.engine.arg_utils import EngineArgs
from vllm.usage.usage_lib import UsageContext

from tests.config.checkpoints import write_checkpoint, write_eagle
from tests.installed import pretend_devices
from tests.patches.cases import TakeOut, is_applied
from vllm_ascend_spec.errors import CheckpointError, ConfigError
from vllm_ascend_spec.hooks import engine_hook as patch
from vllm_ascend_spec.hooks.preflight import merged_speculative_config, resolve_args
from vllm_ascend_spec.ops.registry import Op
from vllm_ascend_spec.patches import spec_sampling_params
from vllm_ascend_spec.verification import backend

WRONG = {"method": "telepathy", "num_speculative_tokens": 3}


@pytest.fixture
def stock_calls(take_out: TakeOut) -> Iterator[list[Any]]:
    """Take the patch out, and return the calls that reach vLLM's own function."""
    take_out(spec_sampling_params)
    take_out(patch)
    calls: list[Any] = []
    with pytest.MonkeyPatch.context() as changes:

        def create_engine_config(self: Any, *args: Any, **kwargs: Any) -> Any:
            calls.append((args, kwargs))
            spec = self.speculative_config
            return SimpleNamespace(speculative_config=spec and SimpleNamespace(**spec))

        changes.setattr(EngineArgs, "create_engine_config", create_engine_config)
        yield calls
        # While the fake is in place: reverting later would put it back for good.
        patch.revert()


@pytest.fixture
def spec(tmp_path: Path) -> dict[str, Any]:
    folder = write_eagle(tmp_path / "eagle")
    return {"method": "eagle", "model": str(folder), "num_speculative_tokens": 3}


def engine_args(target: Path, spec: Any, **other: Any) -> EngineArgs:
    # Not through __init__, which asks for the model's config.
    args = object.__new__(EngineArgs)
    values = {"load_format": "auto", "additional_config": {}, **other}
    vars(args).update(model=str(target), speculative_config=spec, **values)
    return args


def test_stock_fault_and_patch(tmp_path: Path, stock_calls: list[Any]) -> None:
    target = write_checkpoint(tmp_path / "target")
    engine_args(target, WRONG).create_engine_config()
    assert len(stock_calls) == 1
    patch.apply()
    with pytest.raises(ConfigError, match="telepathy"):
        engine_args(target, WRONG).create_engine_config()
    assert len(stock_calls) == 1


def test_right_arguments_reach_vllm_unchanged(
    tmp_path: Path, stock_calls: list[Any], spec: dict[str, Any]
) -> None:
    patch.apply()
    spec["draft_sample_method"] = "probabilistic"
    args = engine_args(write_checkpoint(tmp_path / "target"), spec)
    before = dict(vars(args))
    config = args.create_engine_config("usage", headless=True)
    assert vars(config.speculative_config) == spec
    assert stock_calls == [(("usage",), {"headless": True})]
    assert vars(args) == before


def test_draft_of_another_target_is_refused(
    tmp_path: Path, stock_calls: list[Any], spec: dict[str, Any]
) -> None:
    patch.apply()
    args = engine_args(write_checkpoint(tmp_path / "target", vocab_size=99), spec)
    with pytest.raises(CheckpointError, match="vocab_size"):
        args.create_engine_config()
    assert stock_calls == []


def test_our_own_options_are_checked(
    tmp_path: Path, stock_calls: list[Any], spec: dict[str, Any]
) -> None:
    patch.apply()
    args = engine_args(
        write_checkpoint(tmp_path / "target"),
        spec,
        additional_config={"ascend_spec": {"draft_lop": "auto"}},
    )
    with pytest.raises(ConfigError, match="draft_lop"):
        args.create_engine_config()
    assert stock_calls == []


def test_a_page_without_statistics_or_without_a_server_is_refused(
    tmp_path: Path, stock_calls: list[Any], spec: dict[str, Any]
) -> None:
    patch.apply()
    target = write_checkpoint(tmp_path / "target")
    wanted = {"additional_config": {"ascend_spec": {"spec_page": True}}}
    with pytest.raises(ConfigError, match="contradicts --disable-log-stats"):
        engine_args(target, spec, disable_log_stats=True, **wanted).create_engine_config()
    # Whoever calls LLM() hears that first, for it has no statistics unless it is told to.
    args = engine_args(target, spec, disable_log_stats=True, **wanted)
    with pytest.raises(ConfigError, match="the page needs an HTTP server"):
        args.create_engine_config(usage_context=UsageContext.LLM_CLASS)
    assert stock_calls == []
    engine_args(target, spec, **wanted).create_engine_config(UsageContext.OPENAI_API_SERVER)
    assert len(stock_calls) == 1


def test_requests_are_let_through_from_then_on(stock_calls: list[Any]) -> None:
    del stock_calls
    assert not is_applied(spec_sampling_params)
    patch.apply()
    patch.apply()
    assert is_applied(spec_sampling_params)
    patch.revert()
    assert not is_applied(spec_sampling_params)


def test_checks_run_once_however_often_they_are_installed(
    tmp_path: Path, stock_calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[Any] = []
    monkeypatch.setattr(patch, "resolve_args", lambda args, **_: checked.append(args))
    patch.apply()
    patch.apply()
    engine_args(tmp_path, None).create_engine_config()
    assert len(checked) == len(stock_calls) == 1


@pytest.mark.parametrize(
    ("short", "spec", "merged"),
    [
        ({}, None, None),
        ({}, {"method": "eagle"}, {"method": "eagle"}),
        (
            {"spec_method": "eagle", "spec_model": "m", "spec_tokens": 2},
            None,
            {"method": "eagle", "model": "m", "num_speculative_tokens": 2},
        ),
        (
            {"spec_tokens": 2},
            {"method": "eagle"},
            {"method": "eagle", "num_speculative_tokens": 2},
        ),
        ({"spec_method": "eagle"}, {"method": "draft_model"}, {"method": "draft_model"}),
        ({"spec_method": "eagle"}, "text", "text"),
    ],
)
def test_short_flags_belong_to_the_speculative_config(
    short: dict[str, Any], spec: Any, merged: Any
) -> None:
    flags = {"spec_method": None, "spec_model": None, "spec_tokens": None, **short}
    args = SimpleNamespace(speculative_config=spec, **flags)
    assert merged_speculative_config(args) == merged


def test_short_flags_are_those_of_vllm() -> None:
    flags = {"spec_method", "spec_model", "spec_tokens"}
    assert flags <= set(EngineArgs.__dataclass_fields__)


def test_model_may_be_a_positional_argument(tmp_path: Path, spec: dict[str, Any]) -> None:
    missing = str(tmp_path / "missing")
    args = SimpleNamespace(
        model_tag=missing,
        model="org/default",
        speculative_config=spec,
        additional_config={},
        load_format="auto",
    )
    with pytest.raises(CheckpointError) as raised:
        resolve_args(args)
    assert (raised.value.option, raised.value.value) == ("model", missing)


def test_backend_that_cannot_run_is_refused(
    tmp_path: Path, stock_calls: list[Any], spec: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    why = "the C++ backend was not built: no compiler"
    monkeypatch.setattr(Op, "status", lambda self, device: {"reference": "ready", "cpu": why})
    patch.apply()
    target = write_checkpoint(tmp_path / "target")
    for name in ("reference", None):
        section = {"ascend_spec": {"verify_backend": name}}
        engine_args(target, spec, additional_config=section).create_engine_config()
    assert len(stock_calls) == 2
    section = {"ascend_spec": {"verify_backend": "cpu"}}
    with pytest.raises(ConfigError, match="not built: no compiler"):
        engine_args(target, spec, additional_config=section).create_engine_config()
    assert len(stock_calls) == 2


@pytest.mark.parametrize("device", ["npu", None])
def test_backend_is_looked_for_on_the_device_there_is(
    device: str | None, tmp_path: Path, spec: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    pretend_devices(monkeypatch, *([device] if device else []))
    monkeypatch.setattr(backend, "require_backend", lambda *arguments: asked.append(arguments))
    target = write_checkpoint(tmp_path / "target")
    section = {"ascend_spec": {"verify_backend": "cpu"}}
    resolve_args(engine_args(target, spec, additional_config=section))
    assert asked == [("cpu", device or "cpu")]
