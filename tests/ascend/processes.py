"""Engines in processes of their own; equal engines run once."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from tests.ascend.environment import CPU, IS_SIMULATED, NPU, ROOT, python_of
from tests.ascend.matrix import Case
from tests.ascend.warm import WarmProcesses
from tests.marks import names_a_limit
from vllm_ascend_spec.cli import env

TIME_LIMIT_S = 840
# What each engine's environment says itself, and what is another in each test.
NOT_GIVEN = frozenset({*NPU, *CPU, "PYTEST_CURRENT_TEST"})
# A machine's: engines of one NPU and of two are copied from one process.
FEWEST_DEVICES = 2
DRAFTED = "vllm:spec_decode_num_draft_tokens"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens"
Outcome = dict[str, Any]
Run = Callable[..., Outcome]


class Engines:
    """What engines answered, kept on disk for all processes of a session of pytest.

    Args:
        folder: of the session.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # Once: what tests import in this process adds variables of its own, and each environment
        # wants a process that imports vLLM.
        self._given = {name: v for name, v in os.environ.items() if name not in NOT_GIVEN}
        self._warm = WarmProcesses(folder)
        folder.mkdir(exist_ok=True)

    def run(self, case: Case, environment: dict[str, str] = NPU, **job: Any) -> Outcome:
        """Return what an engine answers to a case; equal ones are started once."""
        job |= {
            "arguments": case.arguments(),
            "spec": case.spec(),
            "requests": list(case.requests),
            "watched": case.watched,
            "checked": case.checked,
        }
        environment = environment | {"NPU_SIM_DEVICES": str(max(case.devices, FEWEST_DEVICES))}
        key = hashlib.sha256(json.dumps([job, environment], sort_keys=True).encode()).hexdigest()
        output = self._folder / f"{key}.json"
        with FileLock(output.with_suffix(".lock")):
            if not output.is_file():
                self.start({**job, "output": str(output)}, environment)
        return json.loads(output.read_text())

    def start(self, job: dict[str, Any], environment: dict[str, str]) -> None:
        """Run one engine, which writes its outcome; fail with its last words if it does not.

        Args:
            job: with ``output``, and ``module`` if another one than ``tests.ascend.engine`` does
                it, in its ``main``.
            environment: of the engine, besides what this process was given.
        """
        ours = {"VLLM_PLUGINS": str(env.plugins({})), "NPU_SIM_DEVICES": str(FEWEST_DEVICES)}
        environment = {**self._given, **ours, **environment}
        log = Path(job["output"]).with_suffix(".log")
        # What a driver does in a copy of a process nobody has seen.
        start = self._warm.run if IS_SIMULATED else run_anew
        status = start({**job, "log": str(log)}, environment, TIME_LIMIT_S)
        if not Path(job["output"]).is_file():
            said = log.read_text(errors="replace") if log.is_file() else ""
            for line in said.splitlines():
                if line.startswith("vllm_ascend_spec.errors.") and names_a_limit(line):
                    pytest.skip(line)
            pytest.fail(f"the engine ended with {status}:\n{said[-4000:]}")

    def close(self) -> None:
        """End the processes that engines were copied from."""
        self._warm.close()


def tokens_of(outcome: Outcome, kind: str) -> list[list[int]]:
    """Return the token ids of the answers to one kind of request."""
    return [answer["tokens"] for answer in outcome["answers"][kind]]


def assert_same_drafts(found: Outcome, expected: Outcome, kind: str) -> None:
    """Compare the drafts of each request after each of its texts, and what came of them."""
    pairs = zip(found["drafts_of"][kind], expected["drafts_of"][kind], strict=True)
    for number, (ours, theirs) in enumerate(pairs):
        for (length, drafts), (wanted_length, wanted) in zip(ours, theirs, strict=False):
            where = f"request {number}, after {wanted_length} tokens"
            assert (length, drafts) == (wanted_length, wanted), f"{where}: other drafts"
        assert len(ours) == len(theirs), f"request {number}: drafted {len(ours)} times"
    counted, wanted = found["counters_of"][kind], expected["counters_of"][kind]
    for name in (DRAFTED, ACCEPTED):
        assert counted[name] == wanted[name] > 0, name


def run_anew(job: dict[str, Any], environment: dict[str, str], time_limit_s: float) -> int:
    """Run one engine in a process that starts from nothing and return its exit status."""
    with Path(job["log"]).open("w") as log:
        done = subprocess.run(
            [python_of(environment), "-m", job.get("module", "tests.ascend.engine")],
            input=json.dumps(job),
            env=environment,
            cwd=ROOT,
            stdout=log,
            stderr=log,
            text=True,
            timeout=time_limit_s,
            check=False,
        )
    return done.returncode
