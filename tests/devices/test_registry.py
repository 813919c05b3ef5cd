"""Devices and methods of other packages: found by their entry points, or refused in one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.extension import write_package
from tests.zoo import SPECS, TARGET
from vllm_ascend_spec.devices import registry as devices
from vllm_ascend_spec.devices import select
from vllm_ascend_spec.errors import ExtensionError
from vllm_ascend_spec.methods import registry as methods

DEVICE = """
    from vllm_ascend_spec.config.device import Device
    from vllm_ascend_spec.errors import ConfigError

    def check(request):
        if request.spec.get("draft_sample_method") == "probabilistic":
            raise ConfigError("speculative_config.draft_sample_method", "probabilistic",
                              "an abacus cannot throw dice")

    DEVICE = Device(name="abacus", about="an abacus", find=lambda: True,
                    platform="abacus.Platform", family="vllm", max_drafts=7, checks=(check,))
    OTHER_CPU = Device(name="cpu", about="a CPU", find=lambda: True, platform="x.Y",
                       family="vllm", max_drafts=1)
    NONE = "a text"
"""
METHOD = """
    from vllm_ascend_spec.config.method import ALWAYS, Method

    METHOD = Method(name="echo", about="the last tokens again", options=ALWAYS | {"distance"},
                    vllm_method="ngram", drafters={"vllm": ("echo_method:Echo",)})
    EAGLE = Method(name="eagle", about="another bird", options=ALWAYS, drafters={})
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a function that installs a package for the time of a test."""
    monkeypatch.syspath_prepend(str(tmp_path))
    names: list[str] = []

    def install(name: str, source: str, **entry_points: str) -> None:
        write_package(tmp_path, name, source, **entry_points)
        names.append(name)
        forget()

    yield install
    for name in names:
        sys.modules.pop(name, None)
    forget()


def forget() -> None:
    devices.all_devices.cache_clear()
    methods.all_methods.cache_clear()


def test_a_device_of_another_package_is_chosen_first(install: Any) -> None:
    install("abacus", DEVICE, vllm_ascend_spec__devices="abacus = abacus:DEVICE")
    assert list(devices.all_devices()) == ["abacus", "npu", "cuda", "cpu"]
    found = select.find_device()
    assert found is not None
    assert found.name == "abacus"
    assert select.select_platform() == select.DeviceChoice("abacus.Platform")


def check(spec: dict[str, Any], path: Path, **environment: str) -> Any:
    """Run the command in a process of its own, which finds the package by its entry point."""
    code = "import sys; from vllm_ascend_spec.cli.main import main; sys.exit(main())"
    command = [
        sys.executable,
        "-c",
        code,
        "check",
        "--light",
        "--json",
        TARGET,
        "--speculative-config",
        json.dumps(spec),
    ]
    where = os.pathsep.join([str(path), *filter(None, sys.path)])
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": where, **environment},
    )
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr


def test_its_rules_and_its_limit_hold(tmp_path: Path) -> None:
    write_package(tmp_path, "abacus", DEVICE, vllm_ascend_spec__devices="abacus = abacus:DEVICE")
    eagle = {**SPECS["eagle"], "num_speculative_tokens": 7}
    report = check(eagle, tmp_path)
    assert (report["device"], report["platform"]) == ("abacus", "abacus.Platform")
    assert report["speculation"]["device"] == {"value": "abacus", "from": "an abacus"}
    assert report["speculation"]["drafter"]["value"]
    error = check({**eagle, "num_speculative_tokens": 8}, tmp_path)
    assert "num_speculative_tokens=8: valid: a whole number from 1 to 7 on an abacus" in error
    error = check({**eagle, "draft_sample_method": "probabilistic"}, tmp_path)
    assert "an abacus cannot throw dice" in error
    # Not where the person names another device.
    assert check({**eagle, "num_speculative_tokens": 8}, tmp_path, VLLM_ASCEND_SPEC_DEVICE="cpu")


def test_a_method_of_another_package_is_resolved(tmp_path: Path) -> None:
    write_package(
        tmp_path, "echo_method", METHOD, vllm_ascend_spec__methods="echo = echo_method:METHOD"
    )
    spec = {"method": "echo", "num_speculative_tokens": 2, "distance": 9}
    found = check(spec, tmp_path, VLLM_ASCEND_SPEC_DEVICE="cpu")["speculation"]
    assert found["vllm_method"]["value"] == "ngram"
    assert found["drafter"]["value"] == ["echo_method:Echo"]
    assert found["options"]["value"] == {"distance": 9}
    assert "method='echo': not supported" in check(spec, tmp_path / "without")


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("x = abacus:OTHER_CPU", ("abacus brings device 'cpu'", "which vllm-ascend-spec has")),
        ("x = abacus:NONE", ("Entry point 'x' of abacus", "is str; valid: a", "device.Device")),
        ("x = abacus:MISSING", ("'x' of abacus", "cannot be imported: AttributeError")),
        ("x = no_such_module:DEVICE", ("'x' of abacus", "No module named 'no_such_module'")),
    ],
)
def test_what_is_no_device_is_one_error_that_names_it(
    install: Any, entry: str, words: tuple[str, ...]
) -> None:
    install("abacus", DEVICE, vllm_ascend_spec__devices=entry)
    with pytest.raises(ExtensionError) as raised:
        devices.all_devices()
    message = str(raised.value)
    assert all(word in message for word in words)
    assert "\n" not in message
    choice = select.select_platform()
    assert (choice.is_refusal, choice.note) == (True, message)


def test_two_methods_of_a_name_are_one_error(install: Any) -> None:
    install("echo_method", METHOD, vllm_ascend_spec__methods="eagle = echo_method:EAGLE")
    with pytest.raises(ExtensionError, match="echo_method brings method 'eagle'"):
        methods.all_methods()


def test_two_packages_with_one_name_are_both_named(install: Any) -> None:
    install("abacus", DEVICE, vllm_ascend_spec__devices="abacus = abacus:DEVICE")
    install("abacus_too", DEVICE, vllm_ascend_spec__devices="zabacus = abacus_too:DEVICE")
    with pytest.raises(ExtensionError, match=r"abacus_too brings .*which abacus has"):
        devices.all_devices()
