"""Run one phase of ``train``: ``python -m vllm_ascend_spec.training.phases.run NAME OUTPUT``."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from vllm_ascend_spec.training.output import Output
from vllm_ascend_spec.training.process import run_process, show
from vllm_ascend_spec.training.settings import Settings

PACKAGE = "vllm_ascend_spec.training.phases"
PHASES = ("answers", "states", "vocabulary", "fit", "proof")


def main(words: Sequence[str]) -> None:
    """Run the phase that is named."""
    name, folder = words
    settings = Settings.load(Output(Path(folder)).settings)
    importlib.import_module(f"{PACKAGE}.{name}").run(settings, show)


if __name__ == "__main__":
    run_process(lambda: main(sys.argv[1:]))
