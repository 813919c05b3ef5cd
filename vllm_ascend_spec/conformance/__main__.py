"""``python -m vllm_ascend_spec.conformance VERSION``: list what does not fit a version of vLLM.

It fetches that version's source from the package index and reads it; it installs and imports
nothing. It prints a line for each import, override, ``super()`` call, argument and attribute that
we use and this version lacks. A port to a new version starts from this list, see
docs/add_version.md.
"""

from __future__ import annotations

import argparse
import sys

from vllm_ascend_spec.conformance.fetch import fetch, newest
from vllm_ascend_spec.conformance.look import (
    PACKAGES,
    installed_folders,
    installed_versions,
    uses,
)

NEWEST, INSTALLED = "newest", "installed"


def main(arguments: list[str] | None = None) -> int:
    """Print what does not fit; return 1 if there is any, 2 if a version cannot be fetched."""
    parser = argparse.ArgumentParser(prog="python -m vllm_ascend_spec.conformance")
    parser.add_argument("version", help=f"of vLLM, {NEWEST!r} on the index, or {INSTALLED!r}")
    parser.add_argument(
        "--vllm-ascend", metavar="VERSION", help="look it up in a version of vllm-ascend, too"
    )
    asked = parser.parse_args(arguments)
    if asked.version == INSTALLED:
        if asked.vllm_ascend is not None:
            parser.error("--vllm-ascend: not with what is installed, which has its own")
        folders, found = installed_folders(), installed_versions()
    else:
        try:
            found = {"vllm": newest("vllm") if asked.version == NEWEST else asked.version}
            if asked.vllm_ascend is not None:
                found["vllm-ascend"] = asked.vllm_ascend
            folders = {
                package: fetch(distribution, package, found[distribution])
                for package, distribution in PACKAGES.items()
                if distribution in found
            }
        except (LookupError, OSError) as error:
            sys.stderr.write(f"conformance: {error}\n")
            return 2
    problems = [use for use in uses(folders, found) if use.problem]
    for use in problems:
        sys.stdout.write(f"{use}\n")
    names = ", ".join(f"{name} {version}" for name, version in found.items())
    sys.stdout.write(f"{names}: {len(problems)} uses of ours do not fit\n")
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
