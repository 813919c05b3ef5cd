"""A program that has itself run in a copy of another process, see :mod:`tests.warm`.

It hands over its words, folder, environment and standard files, passes signals on, and ends as the
copy does. Where it cannot have a copy it becomes the real program, from the rest of PATH.
"""

import json
import os
import shutil
import signal
import socket
import sys

SOCKET = "TESTS_WARM_SOCKET"
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def main() -> None:
    """Run the command that this process was started as."""
    name = os.path.basename(sys.argv[0])
    job = {
        "words": [name, *sys.argv[1:]],
        "folder": os.getcwd(),
        "environment": dict(os.environ),
    }
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(os.environ[SOCKET])
        socket.send_fds(peer, [b"\n"], [0, 1, 2])
        lines = peer.makefile("rw")
        lines.write(json.dumps(job) + "\n")
        lines.flush()
        pid = int(lines.readline())
        if not pid:
            become_the_real(name)
        for number in PASSED_ON:
            signal.signal(number, lambda number, frame: os.kill(pid, number))
        end_as(int(lines.readline()))


def become_the_real(name: str) -> None:
    """Run what comes later on PATH."""
    own, _, path = os.environ["PATH"].partition(os.pathsep)
    assert own == os.path.dirname(sys.argv[0]), f"{own} is not the folder of {sys.argv[0]}"
    program = shutil.which(name, path=path)
    assert program is not None, f"no {name} in {path}"
    os.execv(program, [program, *sys.argv[1:]])


def end_as(status: int) -> None:
    """End with a status, or by the signal that a negative one is."""
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


if __name__ == "__main__":
    main()
