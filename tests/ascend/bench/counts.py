"""What a speculative step costs on the simulated NPU, in counts.

This package and plain vllm-ascend serve the same requests, each in a process of its own. What is
counted are device ops, bytes, copies between host and device, waits of the host, and the rows that
the draft model runs on. The counts repeat exactly; they say nothing about time.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vllm_ascend_spec.bench import privacy, provenance
from vllm_ascend_spec.bench.privacy import redact
from vllm_ascend_spec.bench.progress import Progress
from vllm_ascend_spec.devices.select import DEVICE_VARIABLE
from vllm_ascend_spec.errors import ConfigError

ROOT = Path(__file__).parents[3]
CHILD = "tests.ascend.bench.child"
OURS, PLAIN = "vllm-ascend-spec", "vllm-ascend"
WORKLOADS = ("greedy", "sampled", "structured")
# Printed by the child before its result, among whatever engines log.
MARK = "counts: "
VERIFY_OPS, VERIFY_BYTES = 0.4, 0.5


@dataclass(frozen=True)
class Plan:
    """What is counted; see the options in ``__main__.py``."""

    model: str
    speculative_config: Mapping[str, Any]
    prompts: Sequence[str]
    max_tokens: int
    graph_mode: str
    workloads: Sequence[str] = WORKLOADS

    @property
    def num_drafts(self) -> int:
        """Drafts of a request and step."""
        return int(self.speculative_config["num_speculative_tokens"])


def require_simulator() -> None:
    """Raise unless this Python has the simulated NPU.

    Raises:
        ConfigError: it has not.
    """
    if importlib.util.find_spec("npu_sim") is None:
        raise ConfigError(
            "python",
            sys.executable,
            "has no simulated NPU; run `make bench-npu-sim`",
        )


def run(plan: Plan, plugins: str, tell: Callable[[str], None]) -> dict[str, Any]:
    """Run the plan and return its record; ``tell`` prints its table.

    Args:
        plan: what is served.
        plugins: ``VLLM_PLUGINS`` with which this package is used.
    """
    counts = {}
    with Progress(2) as progress:
        for name in (OURS, PLAIN):
            progress.next(f"{name}: {plan.graph_mode}, {len(plan.prompts)} requests")
            counts[name] = _count(plan, name, plugins)
    found = aims(counts, len(plan.prompts), plan.num_drafts)
    record = {
        "benchmark": "npu-sim",
        "provenance": provenance.collect(),
        "plan": {
            **asdict(plan),
            "model": privacy.path(plan.model),
            "speculative_config": privacy.options(plan.speculative_config),
            "graph_mode": privacy.plain(plan.graph_mode),
        },
        "results": counts,
        "aims": found,
    }
    tell(format_table(counts))
    for aim in found:
        tell(f"{'met' if aim['met'] else 'missed'}: {aim['workload']}: {aim['text']}")
    return record


def environment(name: str, before: Mapping[str, str], plugins: str) -> dict[str, str]:
    """Return the environment of one configuration's process."""
    values = {**before, "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "OMP_NUM_THREADS": "1"}
    values.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    values.pop("VLLM_PLUGINS", None)
    if name == OURS:
        values |= {"VLLM_PLUGINS": plugins, DEVICE_VARIABLE: "npu"}
    return values


def _count(plan: Plan, name: str, plugins: str) -> dict[str, Any]:
    return count(asdict(plan), name, plugins)


def job_of(job: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return what the child of a configuration is told."""
    if name != OURS:
        return dict(job)
    # Every step is to draft, whether it pays on a simulated device or not.
    return {**job, "section": {"draft_length": "fixed", **job.get("section", {})}}


def count(
    job: Mapping[str, Any], name: str, plugins: str, more: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return what one engine counts.

    Args:
        job: a plan, and further keys that the child knows.
        name: of the configuration, :data:`OURS` or :data:`PLAIN`.
        plugins: ``VLLM_PLUGINS`` with which this package is used.
        more: further variables of the engine's environment.

    Raises:
        RuntimeError: the engine ended; with its last words.
    """
    job = job_of(job, name)
    process = subprocess.run(
        [sys.executable, "-m", CHILD],
        input=json.dumps(job),
        env=environment(name, {**os.environ, **(more or {})}, plugins),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in process.stdout.splitlines() if line.startswith(MARK)]
    if process.returncode != 0 or not lines:
        output = f"{redact(process.stdout)[-2000:]}{redact(process.stderr)[-4000:]}"
        raise RuntimeError(f"{name} failed:\n{output}")
    result: dict[str, Any] = json.loads(lines[-1].removeprefix(MARK))
    return result


def aims(
    counts: Mapping[str, Mapping[str, Any]], batch: int, num_drafts: int
) -> list[dict[str, Any]]:
    """Set the counts against what this package claims."""
    found = []
    for workload, ours in counts[OURS].items():
        plain = counts[PLAIN][workload]
        verify, theirs = ours["verification"], plain["verification"]
        later = num_drafts - 1
        for text, met in (
            (
                f"verification device ops {_ratio(verify, theirs, 'device_ops'):.2f} of "
                f"vllm-ascend's (aim: {VERIFY_OPS})",
                _ratio(verify, theirs, "device_ops") <= VERIFY_OPS,
            ),
            (
                f"bytes moved by verification {_ratio(verify, theirs, 'bytes'):.2f} of "
                f"vllm-ascend's (aim: {VERIFY_BYTES})",
                _ratio(verify, theirs, "bytes") <= VERIFY_BYTES,
            ),
            (
                f"draft steps 2..K on {batch} rows, one a request",
                later == 0 or ours["draft_rows"].get(str(batch)) == later,
            ),
            ("no wait of the host inside verification", verify["syncs"] == 0),
            (
                "no more waits of the host in a step than vllm-ascend's",
                ours["step"]["syncs"] <= plain["step"]["syncs"],
            ),
            ("no copy from the device inside verification", verify["d2h_bytes"] == 0),
            ("the same tokens as vllm-ascend", ours["tokens"] == plain["tokens"])
            if workload == "greedy"
            else ("tokens of every request", all(ours["tokens"])),
        ):
            found.append({"workload": workload, "text": text, "met": bool(met)})
    return found


def _ratio(ours: Mapping[str, float], theirs: Mapping[str, float], name: str) -> float:
    return ours[name] / theirs[name] if theirs[name] else float("inf")


ROWS = ("device_ops", "bytes", "syncs", "d2h_bytes", "h2d_bytes")


def format_table(counts: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the counts as a Markdown table."""
    lines = [
        "| requests | per step | " + " | ".join((OURS, PLAIN, "ratio")) + " |",
        "| --- | --- | --- | --- | --- |",
    ]
    for workload, ours in counts[OURS].items():
        plain = counts[PLAIN][workload]
        for part in ("verification", "step"):
            for name in ROWS:
                pair = ours[part][name], plain[part][name]
                ratio = f"{pair[0] / pair[1]:.2f}" if pair[1] else "-"
                values = " | ".join(f"{value:,.1f}" for value in pair)
                lines.append(f"| {workload} | {part}: {name} | {values} | {ratio} |")
        rows = " | ".join(_draft_rows(result["draft_rows"]) for result in (ours, plain))
        lines.append(f"| {workload} | draft model: rows x calls | {rows} | |")
    return "\n".join(lines)


def _draft_rows(calls: Mapping[str, float]) -> str:
    return ", ".join(f"{rows} x {count:g}" for rows, count in sorted(calls.items(), key=_by_rows))


def _by_rows(item: tuple[str, float]) -> int:
    return -int(item[0])
