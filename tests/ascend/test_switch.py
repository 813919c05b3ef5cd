"""How it is switched on, in processes of their own: vLLM picks a platform once."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.ascend.environment import CPU, NPU
from tests.zoo import SPECS, TARGET
from vllm_ascend_spec.cli import env

SHOW = """
from vllm.platforms import current_platform
print("platform:", type(current_platform).__name__)
from vllm.plugins import load_general_plugins
load_general_plugins()
"""


def start(plugins: str | None, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name not in (*NPU, *CPU)}
    environment |= NPU | {"VLLM_LOGGING_LEVEL": "INFO"} | more
    environment.pop("VLLM_PLUGINS", None)
    if plugins is not None:
        environment["VLLM_PLUGINS"] = plugins
    return subprocess.run(
        [sys.executable, *(words or ("-c", SHOW))],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_with_neither_vllm_ascend_is_as_before() -> None:
    done = start(None)
    assert done.returncode == 0, done.stderr
    assert "platform: NPUPlatform" in done.stdout
    told = (done.stdout + done.stderr).count("vllm-ascend-spec is not used")
    assert told == 1


@pytest.mark.nightly  # what `check` starts with below, and every engine of ours
def test_the_printed_line_chooses_ours() -> None:
    done = start(str(env.plugins({})))
    assert done.returncode == 0, done.stderr
    assert "platform: SpecNpuPlatform" in done.stdout
    assert "leaves out" not in done.stdout + done.stderr


@pytest.mark.nightly  # by day tests/test_plugin.py has both
def test_both_are_one_message() -> None:
    done = start(f"{env.plugins({})},ascend")
    assert done.returncode != 0
    assert "PlatformError: VLLM_PLUGINS names both ascend and ascend_spec" in done.stderr
    assert "Only one platform plugin can be activated" not in done.stdout + done.stderr


@pytest.mark.nightly  # by day tests/devices/test_select.py refuses some
def test_device_that_does_not_exist_is_one_message() -> None:
    done = start(str(env.plugins({})), VLLM_ASCEND_SPEC_DEVICE="gpu")
    assert done.returncode != 0
    assert "VLLM_ASCEND_SPEC_DEVICE='gpu': valid: npu, cuda, cpu" in done.stderr


@pytest.mark.nightly  # by day test_guide_command.py has a `check` there
def test_check_runs_on_the_device_that_the_environment_names() -> None:
    """As an engine does; in a process in which nothing has chosen a platform before."""
    words = ["-m", "vllm_ascend_spec.cli.main", "check", "--json", TARGET]
    done = start(str(env.plugins({})), *words, "--speculative-config", json.dumps(SPECS["eagle"]))
    assert done.returncode == 0, done.stderr
    assert "leaves out" not in done.stdout + done.stderr
    record = json.loads(done.stdout)
    assert record["device"] == "npu"
    assert "SpecNpuPlatform" in record["platform"]
    assert not any("this machine's device" in note for note in record["notes"])


@pytest.mark.parametrize("missing", ["ascend_model"])
def test_parts_of_vllm_ascend_that_are_left_out_are_named(missing: str) -> None:
    names = [name for name in str(env.plugins({})).split(",") if name != missing]
    done = start(",".join(names))
    assert "platform: SpecNpuPlatform" in done.stdout
    assert f"leaves out {missing}" in done.stdout + done.stderr
