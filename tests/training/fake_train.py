"""Runs fake phases as ``train`` runs its own: ``python -m tests.training.fake_train OUTPUT``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from vllm_ascend_spec.training import phases, sequence
from vllm_ascend_spec.training.output import Output
from vllm_ascend_spec.training.phases.run import main as run_phase
from vllm_ascend_spec.training.process import leave, show
from vllm_ascend_spec.training.settings import Settings

phases.__path__.append(str(Path(__file__).with_name("fake_phases")))
NAMES = ("first", "second", "third")


def main(folder: str) -> int:
    sequence.RUN = __name__ if __name__ != "__main__" else "tests.training.fake_train"
    sequence.TRAINS = "second"
    output = Output(Path(folder))
    with sequence.owned(output) as lock:
        return sequence.run_phases(Settings.load(output.settings), show, os.environ, lock, NAMES)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        leave(run_phase(sys.argv[1:]))
    sys.exit(main(sys.argv[1]))
