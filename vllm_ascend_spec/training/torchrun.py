"""Run a module in a process for each device by torchrun, which ends with the command.

``python -m vllm_ascend_spec.training.torchrun PARENT COUNT MODULE [WORD ...]``
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from vllm_ascend_spec.training.process import leave, shell_status, status_of


def run(parent: str, count: str, *words: str) -> None:
    """Run the module until all processes have ended.

    Args:
        parent: number of the process that started this one.
        count: of the processes.
        words: the module and what it is given.

    Raises:
        KeyboardInterrupt: a signal ended it, or the parent is gone.
        SystemExit: with the status of the first process that failed.
    """
    if os.getppid() != int(parent):
        # It died before it could be asked to tell of that.
        raise KeyboardInterrupt
    from torch.distributed import run as torchrun
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    options = ["--standalone", "--nproc-per-node", count, "-m", *words]
    try:
        torchrun.run(torchrun.parse_args(options))
    except SignalException:
        raise KeyboardInterrupt from None
    except ChildFailedError as error:
        raise SystemExit(shell_status(error.get_first_failure()[1].exitcode)) from None


def main(words: Sequence[str]) -> int:
    """Run what is named and return the exit status."""
    return status_of(lambda: run(*words))


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
