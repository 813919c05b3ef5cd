"""``vllm-ascend-spec env``: print the line that selects our platform over vllm-ascend's."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from importlib import metadata

from vllm_ascend_spec.devices import plugins as known

HELP = 'print the line that selects this plugin on an Ascend host: eval "$(vllm-ascend-spec env)"'
VARIABLE = "VLLM_PLUGINS"
# vLLM loads plugins of this group only if they are named, which is left to the user.
NAMED_ONLY = "vllm.endpoint_plugins"
NOTHING_TO_SET = (
    "vllm-ascend is not installed and VLLM_PLUGINS is not set: "
    "vLLM uses vllm-ascend-spec by itself, and nothing has to be set"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add no arguments."""


def plugins(current: Mapping[str, str]) -> str | None:
    """Return the ``VLLM_PLUGINS`` that selects our platform; None to leave it unset.

    The variable lists all plugins that vLLM may load, of every kind. So it has to name ours, the
    plugins of vllm-ascend other than its platform, and everyone else's: those that the variable
    names already or, if it is unset, all that are installed.

    Args:
        current: the environment variables.
    """
    allowed = current.get(VARIABLE)
    if allowed is None and not known.has_vllm_ascend():
        return None
    kept = installed_plugins() if allowed is None else [name.strip() for name in allowed.split(",")]
    names = [name for name in kept if name not in ("", known.VLLM_ASCEND_PLUGIN)]
    if known.has_vllm_ascend():
        names += known.vllm_ascend_plugins()
    return ",".join(dict.fromkeys([*names, known.PLUGIN_NAME]))


def installed_plugins() -> list[str]:
    """Return the names of all plugins that vLLM loads without being asked."""
    groups = metadata.entry_points().groups
    return sorted(
        entry.name
        for group in groups
        if group.startswith("vllm.") and group != NAMED_ONLY
        for entry in metadata.entry_points(group=group)
    )


def run(args: argparse.Namespace) -> int:
    """Print the line for a shell."""
    value = plugins(os.environ)
    if value is None:
        sys.stderr.write(f"vllm-ascend-spec env: {NOTHING_TO_SET}\n")
    else:
        sys.stdout.write(f"export {VARIABLE}={value}\n")
    return 0
