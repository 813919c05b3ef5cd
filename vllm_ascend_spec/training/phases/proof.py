"""The last phase: what the new head is worth on held-out prompts, beside what there was before.

It is measured beside the head of ``--from``, ``suffix`` and no speculation, each by an engine in a
process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from statistics import mean
from typing import Any

from vllm_ascend_spec.bench.provenance import collect
from vllm_ascend_spec.devices.select import find_device
from vllm_ascend_spec.methods.suffix.checks import library_problem
from vllm_ascend_spec.training import verdict
from vllm_ascend_spec.training.atomic import write_whole
from vllm_ascend_spec.training.contenders import CONTENDERS, NONE, SUFFIX, names_for
from vllm_ascend_spec.training.measure import GREEDY, at_once, held_out, part
from vllm_ascend_spec.training.output import Output
from vllm_ascend_spec.training.process import shell_status
from vllm_ascend_spec.training.progress import duration
from vllm_ascend_spec.training.settings import Settings

NAME = "proof"
MEASURE = "vllm_ascend_spec.training.measure"


def is_done(settings: Settings) -> bool:
    """Tell whether the report is written."""
    return Output(settings.output).report.exists()


def run(settings: Settings, show: Callable[[str], object]) -> None:
    """Measure what was not measured before, and write the report.

    Raises:
        SystemExit: an engine failed; it has said why.
    """
    output, left_out = Output(settings.output), dict[str, str]()
    names, took = names_for(settings), list[float]()
    if SUFFIX in names and (why := library_problem()) is not None:
        left_out[SUFFIX] = why
        names.remove(SUFFIX)
    missing = [name for name in names if not part(output, name).exists()]
    for number, name in enumerate(missing):
        left = f", {duration(mean(took) * (len(missing) - number))} left" if took else ""
        show(f"proof: {CONTENDERS[name].title}: the engine starts{left}")
        begin = time.monotonic()
        words = [sys.executable, "-m", MEASURE, name, str(settings.output)]
        status = subprocess.run(words, check=False).returncode
        if status:
            raise SystemExit(shell_status(status))
        took.append(time.monotonic() - begin)
    text = json.dumps(report(settings, left_out), indent=1, default=str)
    write_whole(output.report, lambda temporary: temporary.write_text(text))


def report(settings: Settings, left_out: Mapping[str, str]) -> dict[str, Any]:
    """Return what was measured, what follows, and how it was measured."""
    output, requests = Output(settings.output), at_once(settings)
    results = {
        name: json.loads(part(output, name).read_text())
        for name in names_for(settings)
        if name not in left_out
    }
    winner = verdict.kept(results)
    drafts = verdict.best_k(results[winner][GREEDY], results[NONE][GREEDY], requests)
    spec = {**(CONTENDERS[winner].spec(settings) or {}), "num_speculative_tokens": drafts}
    speeds = [results[name][GREEDY]["tokens_per_second"] for name in (winner, NONE)]
    device = find_device()
    return {
        "kept": winner,
        "speculative_config": spec,
        "speedup": speeds[0] / speeds[1],
        "requests_at_once": requests,
        "prompts": len(held_out(settings)),
        "same_texts": verdict.same_texts(results),
        "left_out": dict(left_out),
        "results": {
            name: {
                kind: {key: value for key, value in found.items() if key != "answers"}
                for kind, found in kinds.items()
            }
            for name, kinds in results.items()
        },
        "settings": asdict(settings),
        "device": None if device is None else device.name,
        "provenance": collect(),
    }
