"""Run the first two phases, undisturbed and killed at random times; a program of the tests here.

``python -m tests.training.phases.killed WHOLE KILLED KILLS SEED``. Both folders have the same
``settings.json``. What was shown in the second one goes to a file in it. Phases run in copies of
this process, which has imported vLLM, in batches of two prompts.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

from vllm_ascend_spec.training.answer_file import read_answers
from vllm_ascend_spec.training.output import Output
from vllm_ascend_spec.training.phases import answers, run, states
from vllm_ascend_spec.training.shards import ShardReader

BATCH = 2
SHOWN = "shown.json"
PHASES = (answers.NAME, states.NAME)


def start(name: str, output: Path) -> tuple[int, int]:
    """Start a phase; return its process and what reads the lines that it shows."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(writes, 1)
        os._exit(run.main([name, str(output)]))
    os.close(writes)
    return child, reads


def is_killed(child: int) -> bool:
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or status == 0, status
    return os.WIFSIGNALED(status)


def kill_at_random(child: int, reads: int, draw: random.Random, least: int) -> list[str]:
    """Kill a phase some time after it has shown so many of its lines or more."""
    wanted = draw.randint(least, 4)
    with open(reads) as file:
        shown = [line for _, line in zip(range(wanted), file, strict=False)]
        # A batch takes less time than a start.
        time.sleep(draw.uniform(0, 0.02 if wanted else 2))
        os.kill(child, signal.SIGKILL)
        return [line.strip() for line in (*shown, *file)]


def check(output: Output) -> None:
    """Everything that is there can be read."""
    if output.answers.exists():
        list(read_answers("--output", output.answers))
    if (output.states / "layout.json").exists():
        reader = ShardReader(output.states)
        for name in reader.lengths:
            reader.read(name)


def main(whole: Path, killed: Path, kills: int, seed: int) -> None:
    import vllm.entrypoints.llm  # noqa: F401 - for all copies at once

    answers.BATCH = states.BATCH = BATCH  # type: ignore[attr-defined]
    draw, shown = random.Random(seed), []
    for name in PHASES:
        child, reads = start(name, whole)
        with open(reads) as file:
            shown.append([name, False, file.read().splitlines()])
        assert not is_killed(child)
    for name in PHASES:
        for number in range(kills + 1):
            child, reads = start(name, killed)
            if number < kills:
                # The first one after a batch, so that there is something to go on with.
                lines = kill_at_random(child, reads, draw, 0 if number else 3)
            else:
                lines = open(reads).read().splitlines()  # noqa: SIM115
            shown.append([name, is_killed(child), lines])
            check(Output(killed))
    (killed / SHOWN).write_text(json.dumps(shown))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
