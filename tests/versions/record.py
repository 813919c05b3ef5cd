"""Write the row of the installed version into ``docs/records/versions.json``.

``PYTHON -m tests.versions.record``, with the Python of an environment that has the version
(``.ci/setup-version``). Each engine runs in a process of its own, two at a time. ``--table`` prints
the table of docs/versions.md instead.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.ascend.environment import CPU, IS_HERE, NPU, ROOT
from tests.ascend.targets.mla import MLA_ENVIRONMENT
from tests.versions.cell import CPU_MODES, DEEPSEEK, NPU_MODES, PROMPTS, SPECS, TOKENS
from vllm_ascend_spec.bench import provenance
from vllm_ascend_spec.cli import env
from vllm_ascend_spec.versions import installed_version

RECORD = ROOT / "docs" / "records" / "versions.json"
TIME_LIMIT_S = 900
LAST_WORDS = 300


def name_of_installed() -> str:
    """Return the row's name: the versions of vLLM and, on an NPU, of vllm-ascend."""
    vllm = f"vLLM {str(installed_version('vllm')).partition('+')[0]}"
    return f"{vllm}, vllm-ascend {installed_version('vllm-ascend')}" if IS_HERE else vllm


def run_cell(method: str | None, target: str, mode: str) -> dict[str, Any]:
    """Return what one engine came to, or ``{"error": its last words}``."""
    own = NPU if IS_HERE else CPU
    environment = {**os.environ, **own, "PYTHONPATH": str(ROOT)}
    if IS_HERE:
        environment["VLLM_PLUGINS"] = str(env.plugins({}))
        environment |= MLA_ENVIRONMENT if target == DEEPSEEK else {}
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "out.json")
        job = {"method": method, "target": target, "mode": mode, "on_npu": IS_HERE}
        try:
            done = subprocess.run(
                [sys.executable, "-m", "tests.versions.cell"],
                input=json.dumps({**job, "output": str(output)}),
                env=environment,
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=TIME_LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return {"error": f"did not end in {TIME_LIMIT_S} s"}
        if output.is_file():
            return json.loads(output.read_text())
    lines = [line for line in done.stdout.splitlines() if "Error" in line] or [done.stdout]
    sys.stderr.write(f"{method}, {mode}: {lines[-1]}\n")
    return {"error": lines[-1][-LAST_WORDS:]}


def measure(methods: list[str]) -> dict[str, dict[str, Any]]:
    """Return by method and mode what came of it: ``equal`` answers of ``of``, tokens per step."""
    modes = NPU_MODES if IS_HERE else CPU_MODES
    cells = [(method, mode) for method in methods for mode in modes]
    targets = sorted({(target_kind(method), mode) for method, mode in cells})
    with ThreadPoolExecutor(2) as pool:
        plain = dict(zip(targets, pool.map(lambda t: run_cell(None, *t), targets), strict=True))
        ours = dict(zip(cells, pool.map(lambda c: run_cell(c[0], *c), cells), strict=True))
    rows: dict[str, dict[str, Any]] = {}
    for (method, mode), found in ours.items():
        expected = plain[target_kind(method), mode]
        rows.setdefault(method, {})[mode] = judged(found, expected)
    return rows


def target_kind(method: str) -> str:
    """Return a method of the same target, the first of its kind."""
    return method if method in ("mtp", DEEPSEEK) else "eagle"


def judged(found: Mapping[str, Any], expected: Mapping[str, Any]) -> dict[str, Any]:
    """Compare an engine's answers with those of no speculation."""
    for outcome in (expected, found):
        if "error" in outcome:
            return {"error": outcome["error"]}
    same = [a == b for a, b in zip(found["tokens"], expected["tokens"], strict=True)]
    return {
        "equal": sum(same),
        "of": len(same),
        "tokens_per_step": found["tokens_per_step"],
    }


def table(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of the table: a row for each method, a column for each version.

    A cell has one figure where both modes came to the same.
    """
    versions = record["versions"]
    yield "| | " + " | ".join(versions) + " |"
    yield "|---" * (len(versions) + 1) + "|"
    for method in SPECS:
        cells = []
        for version in versions.values():
            modes = version["methods"].get(method, {}).values()
            cells.append(" / ".join(dict.fromkeys(map(told, modes))))
        yield f"| `{method}` | " + " | ".join(cells) + " |"


def told(found: Mapping[str, Any]) -> str:
    """Return a mode's text: tokens per step where all answers are equal."""
    if "error" in found:
        return "-"
    if found["equal"] < found["of"]:
        return f"**{found['equal']} of {found['of']}**"
    return f"{found['tokens_per_step']:.2f}"


def read() -> dict[str, Any]:
    """Return the record."""
    if RECORD.is_file():
        return json.loads(RECORD.read_text())
    return {"prompts": PROMPTS, "tokens": TOKENS, "versions": {}}


def main() -> None:
    """Measure what is installed, or print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.versions.record")
    parser.add_argument("methods", nargs="*", help="some methods only; the others stay as they are")
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args()
    record = read()
    if asked.table:
        print("\n".join(table(record)))
        return
    rows = measure(asked.methods or list(SPECS))
    about = provenance.collect()
    entry = record["versions"].setdefault(name_of_installed(), {"methods": {}})
    entry["provenance"] = about
    entry["methods"] |= rows
    record["versions"] = dict(sorted(record["versions"].items()))
    RECORD.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
