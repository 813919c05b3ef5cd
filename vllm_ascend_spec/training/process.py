"""How the processes of ``train`` end: with what they have on the disk, and with their parent."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

from vllm_ascend_spec.errors import AscendSpecError

# That of an option which is wrong before anything is loaded is 2.
EXIT_FAILED, EXIT_BAD_INPUT = 1, 3
# As of a process that SIGINT has ended.
EXIT_ENDED = 130
PR_SET_PDEATHSIG = 1


def status_of(work: Callable[[], object]) -> int:
    """Do the work of a process and return its exit status.

    Args:
        work: leaves whole files whenever it is interrupted.
    """
    _end_gently()
    try:
        work()
    except AscendSpecError as error:
        sys.stderr.write(f"vllm-ascend-spec train: error: {error}\n")
        return EXIT_BAD_INPUT
    except KeyboardInterrupt:
        return EXIT_ENDED
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else EXIT_FAILED
    except Exception:  # shown as Python shows it
        traceback.print_exc()
        return EXIT_FAILED
    return 0


def shell_status(status: int) -> int:
    """Return the status that a shell gives a process: negative here is the signal that ended it."""
    return status if status >= 0 else 128 - status


def leave(status: int) -> NoReturn:
    """End this process without the clean-up of the libraries that it has loaded.

    Some of them write pages about themselves then, and the line that says what is wrong is to be
    the last one.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def show(line: str) -> None:
    """Show the person who waits a line."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _end_gently() -> None:
    """Take SIGTERM like Ctrl-C, and get a signal when the parent dies, which may have been killed.

    torchrun waits for the processes that it has asked to end. Where it is gone before them, it was
    killed, and one that has been asked already would not listen again.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    at_death = signal.SIGKILL if "LOCAL_RANK" in os.environ else signal.SIGTERM
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, at_death)


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
