"""Run one phase of ``train``: ``python -m vllm_ascend_spec.training.phases.run NAME OUTPUT``."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from vllm_ascend_spec.training.output import Output
from vllm_ascend_spec.training.process import leave, show, status_of
from vllm_ascend_spec.training.settings import Settings

PACKAGE = "vllm_ascend_spec.training.phases"
PHASES = ("answers", "states", "vocabulary", "fit", "proof")
# What vLLM says is kept apart from our lines; the command sets how much that is.
STREAM, TO_STDERR = "VLLM_LOGGING_STREAM", "ext://sys.stderr"


def main(words: Sequence[str]) -> int:
    """Run the phase that is named and return the exit status."""
    name, folder = words
    os.environ.setdefault(STREAM, TO_STDERR)
    settings = Settings.load(Output(Path(folder)).settings)
    phase = importlib.import_module(f"{PACKAGE}.{name}")
    return status_of(lambda: phase.run(settings, show))


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
