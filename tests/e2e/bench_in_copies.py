"""``vllm-ascend-spec`` with servers that are found on PATH, where tests put copies of a process.

The command itself takes the ``vllm`` beside its Python, see ``versions.vllm_program``.
"""

from __future__ import annotations

import sys

from vllm_ascend_spec.bench import server
from vllm_ascend_spec.cli.main import main

if __name__ == "__main__":
    server.vllm_program = lambda: "vllm"
    sys.exit(main(sys.argv[1:]))
