"""The workflows for GitHub are valid, give away nothing, and run what the documents say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.suite import PARTS

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PINNED = re.compile(r"uses: [\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$")

each = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)


def read(path: Path) -> dict[str, Any]:
    # YAML takes the key "on" for a truth value.
    return {"on" if key is True else key: value for key, value in load(path).items()}


def load(path: Path) -> dict[Any, Any]:
    return yaml.safe_load(path.read_text())


def commands(path: Path) -> str:
    steps = [step for job in read(path)["jobs"].values() for step in job["steps"]]
    return "\n".join(step["run"] for step in steps if "run" in step)


def test_there_is_one_for_the_cpu_one_for_a_gpu_and_one_by_night() -> None:
    assert [path.stem for path in WORKFLOWS] == ["cpu", "gpu", "night"]


@each
def test_it_may_read_the_repository_and_nothing_else(path: Path) -> None:
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert "permissions" not in job
        assert job["timeout-minutes"] <= 180
    assert "secrets." not in path.read_text()
    assert "pull_request_target" not in workflow["on"]


@each
def test_other_peoples_steps_are_pinned_to_a_commit(path: Path) -> None:
    lines = [line.strip().removeprefix("- ") for line in path.read_text().splitlines()]
    uses = [line for line in lines if line.startswith("uses:")]
    assert uses
    assert not [line for line in uses if not PINNED.fullmatch(line)]


@each
def test_what_a_person_types_is_no_part_of_a_script(path: Path) -> None:
    assert "${{" not in commands(path)


def test_the_cpus_runs_the_two_commands_of_the_readme() -> None:
    lines = commands(ROOT / ".github/workflows/cpu.yml").splitlines()
    assert {"make demo", "make test"} <= set(lines)
    assert {"pull_request", "push"} <= set(read(ROOT / ".github/workflows/cpu.yml")["on"])


def test_the_gpus_is_started_by_hand_and_runs_tests_that_exist() -> None:
    path = ROOT / ".github/workflows/gpu.yml"
    triggers = read(path)["on"]
    assert set(triggers) == {"workflow_dispatch"}
    tests = triggers["workflow_dispatch"]["inputs"]["tests"]["default"].split()
    assert tests[0] == "tests/cuda"
    assert all((ROOT / test).exists() for test in tests)
    assert "-m tests.benchmarks verify --device cuda" in commands(path)


def test_by_night_every_part_of_the_suite_runs_and_the_newest_vllm_is_looked_at() -> None:
    path = ROOT / ".github/workflows/night.yml"
    assert "schedule" in read(path)["on"]
    assert read(path)["jobs"]["tests"]["strategy"]["matrix"]["part"] == list(PARTS)
    assert "make test-all" in commands(path)
    assert "conformance newest" in commands(path)
