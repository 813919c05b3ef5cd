"""``vllm-ascend-spec train`` with phases and engines by the ``python`` that is found on PATH.

Tests put copies of a process there that has imported vLLM and the trainer's library, see
``tests/warm``. The command itself starts the Python that it runs in.
"""

from __future__ import annotations

import sys

from vllm_ascend_spec.cli.main import main
from vllm_ascend_spec.training import sequence
from vllm_ascend_spec.training.phases import run
from vllm_ascend_spec.training.process import leave

if __name__ == "__main__":
    sys.executable = "python"
    # A phase starts as this module, too: the last one starts engines.
    sequence.RUN = "tests.e2e.train_in_copies"
    words = sys.argv[1:]
    if words[0] in run.PHASES:
        leave(run.main(words))
    sys.exit(main(words))
