"""``vllm-ascend-spec info``: what is installed and what would be used. Never raises."""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from importlib import metadata
from typing import Any

from vllm_ascend_spec import __version__, versions
from vllm_ascend_spec.bench import provenance
from vllm_ascend_spec.config.methods import METHODS
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.platform import select

HELP = "report versions, device, platform and op backends, for a bug report"
# Their PyPI builds are for CUDA; beside a CPU build of torch they break `import transformers`.
CUDA_ONLY = ("torchvision", "torchaudio", "torchcodec")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take nothing."""


def report() -> dict[str, Any]:
    """Collect the report."""
    choice, device = select.select_platform(), detect_device()
    found = versions.installed_vllm()
    record = provenance.collect()
    return {
        "vllm-ascend-spec": __version__,
        "python": record["python"],
        "versions": record["versions"],
        "vllm_supported": found is not None and versions.is_supported(found[1]),
        "device": device,
        "platform": choice.platform,
        "note": choice.note or None,
        "methods": [name for name, method in METHODS.items() if device in method.proposers],
        "op_backends": op_backends(device or "cpu"),
        "problems": problems(),
        "machine": record["machine"],
        "environment": record["environment"],
    }


def detect_device() -> str | None:
    """Return the device; None too where the variable for it is wrong, which the note tells."""
    try:
        return select.detect_device()
    except ConfigError:
        return None


def op_backends(device: str) -> dict[str, Any] | str:
    """Return the state of every op's backends on a device, or why it cannot be told."""
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    try:
        from vllm_ascend_spec.ops import OPS, cpu_library

        states: dict[str, Any] = {op.name: op.status(device) for op in OPS}
        if cpu_library.failure() is None:
            states["cpu_instruction_set"] = cpu_library.instruction_set()
    except Exception as error:  # a broken torch must not break the report about it
        return f"cannot be told: {type(error).__name__}: {error}"
    return states


def problems() -> list[str]:
    """Return known troubles of this environment, with their remedies."""
    found = []
    try:
        versions.require_vllm()
    except versions.UnsupportedVersionError as error:
        found.append(str(error))
    torch = next((v for n, v in provenance.versions().items() if n == "torch"), "")
    if "+cpu" in torch:
        for name in CUDA_ONLY:
            try:
                version = metadata.version(name)
            except metadata.PackageNotFoundError:
                continue
            if "+cpu" not in version:
                found.append(
                    f"{name} {version} is a CUDA build beside torch {torch} and can break "
                    f"transformers; vLLM runs without it: pip uninstall {name}"
                )
    return found


def run(args: argparse.Namespace) -> int:
    """Print the report as JSON."""
    sys.stdout.write(json.dumps(report(), indent=2) + "\n")
    return 0
