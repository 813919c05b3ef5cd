"""Run one phase of ``train``: ``python -m vllm_ascend_spec.training.phases.run NAME OUTPUT``."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from vllm_ascend_spec.errors import AscendSpecError
from vllm_ascend_spec.training.output import Output
from vllm_ascend_spec.training.settings import Settings

PHASES = ("answers", "states", "vocabulary", "fit", "proof")
EXIT_BAD_INPUT = 2
# The person who waits sees our lines; of vLLM's what may be wrong, apart from them.
LOGGING = {"VLLM_LOGGING_LEVEL": "WARNING", "VLLM_LOGGING_STREAM": "ext://sys.stderr"}


def show(line: str) -> None:
    """Show the person who waits a line."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(words: Sequence[str]) -> int:
    """Run the phase that is named and return the exit status."""
    name, folder = words
    for variable, value in LOGGING.items():
        os.environ.setdefault(variable, value)
    settings = Settings.load(Output(Path(folder)).settings)
    phase = importlib.import_module(f"vllm_ascend_spec.training.phases.{name}")
    try:
        phase.run(settings, show)
    except AscendSpecError as error:
        sys.stderr.write(f"vllm-ascend-spec train: error: {error}\n")
        return EXIT_BAD_INPUT
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
