"""Switch the simulator on in the environment of this Python: `python -m npu_sim.install`.

Builds the native parts and writes `npu_sim.pth` beside the installed packages, which hooks the
import of torch_npu in every process of the environment, workers of engines included.
`python -m npu_sim.install --remove` switches it off.
"""

from __future__ import annotations

import argparse
import sys
import sysconfig
from pathlib import Path

from npu_sim import build

HOOK = "import npu_sim.startup\n"


def hook_file() -> Path:
    """Return where the hook lies."""
    return Path(sysconfig.get_path("purelib"), "npu_sim.pth")


def main(argv: list[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m npu_sim.install", description=__doc__)
    parser.add_argument("--remove", action="store_true", help="switch the simulator off")
    if parser.parse_args(argv).remove:
        hook_file().unlink(missing_ok=True)
        return 0
    try:
        folder = build.build()
    except build.BuildError as error:
        sys.stderr.write(f"npu_sim: {error}\n")
        return 1
    hook_file().write_text(HOOK)
    sys.stdout.write(f"npu_sim: on in {sys.prefix}, native parts in {folder}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
