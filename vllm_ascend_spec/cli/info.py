"""``vllm-ascend-spec info``: what is installed and what would be used.

Never raises, whatever is broken, and shows no secrets.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from typing import Any

from vllm_ascend_spec import __version__, versions
from vllm_ascend_spec.bench import provenance
from vllm_ascend_spec.bench.provenance import Probes, problem_of
from vllm_ascend_spec.cli import info_text
from vllm_ascend_spec.cli.elsewhere import call_elsewhere
from vllm_ascend_spec.cli.patience import waiting
from vllm_ascend_spec.config.device import Device
from vllm_ascend_spec.devices import select
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.methods.registry import all_methods
from vllm_ascend_spec.upstream import limits

HELP = "report what works here, what would be used and what is wrong; --json for a bug report"
# Their PyPI builds are for CUDA; with a CPU build of torch they break `import transformers`.
CUDA_ONLY = ("torchvision", "torchaudio", "torchcodec")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--json``."""
    parser.add_argument(
        "--json", action="store_true", help="print the whole report as a JSON record"
    )


def report() -> dict[str, Any]:
    """Collect the report; ``failed`` has the reason for each entry that is not known."""
    probes = Probes()
    record = provenance.collect()
    choice = probes.run("platform", select.select_platform, select.DeviceChoice(None))
    device = probes.run("device", find_device, None)
    name = device.name if device is not None else None
    return {
        "vllm-ascend-spec": __version__,
        "python": record["python"],
        "versions": record["versions"],
        "vllm_supported": probes.run("vllm_supported", has_supported_vllm, None),
        "device": name,
        "platform": choice.platform,
        "note": choice.note or None,
        "methods": probes.run("methods", lambda: methods_of(device), []),
        "limits": list(limits.EVERY),
        # A broken torch or library can kill the process that loads it.
        "op_backends": probes.run(
            "op_backends",
            lambda: call_elsewhere(__name__, "op_backends", name or "cpu"),
            "cannot be told",
        ),
        "patches": probes.run("patches", lambda: patches(name), "cannot be told"),
        "problems": probes.run("problems", problems, []),
        "machine": record["machine"],
        "environment": record["environment"],
        "failed": {**record["failed"], **probes.failed},
    }


def has_supported_vllm() -> bool:
    """Tell whether a vLLM that this release supports is installed."""
    found = versions.installed_vllm()
    return found is not None and versions.is_supported(found[1])


def find_device() -> Device | None:
    """Return the device; None also if the variable for it is invalid, as the note says."""
    try:
        return select.find_device()
    except ConfigError:
        return None


def patches(device: str | None) -> dict[str, str]:
    """Return the state of every patch of third-party code: active or not needed."""
    from vllm_ascend_spec.patches import registry

    return registry.report(device)


def methods_of(device: Device | None) -> list[str]:
    """Return the methods that a device supports with the installed vLLM version."""
    family = device.family if device is not None else ""
    return [
        name
        for name, method in all_methods().items()
        if family in method.drafters and (name, family) not in limits.WITHOUT_METHODS
    ]


def op_backends(device: str) -> dict[str, Any] | str:
    """Return the state of every op's backends on a device, or why it cannot be told."""
    try:
        if importlib.util.find_spec("torch") is None:
            return "torch is not installed"
        from vllm_ascend_spec.ops import OPS, cpu_library

        states: dict[str, Any] = {op.name: op.status(device) for op in OPS}
        if cpu_library.library_problem() is None:
            states["cpu_instruction_set"] = cpu_library.instruction_set()
    except (Exception, SystemExit) as error:  # a broken torch must not break the report about it
        return f"cannot be told: {problem_of(error)}"
    return states


def problems() -> list[str]:
    """Return known problems of this environment, with their remedies."""
    found = []
    try:
        versions.require_vllm()
    except versions.UnsupportedVersionError as error:
        found.append(str(error))
    installed = provenance.versions(distributions=("torch", *CUDA_ONLY))
    torch = installed.pop("torch", "")
    if "+cpu" in torch:
        for name, version in installed.items():
            if "+cpu" not in version:
                found.append(
                    f"{name} {version} is a CUDA build beside torch {torch} and can break "
                    f"transformers; vLLM runs without it, but for some multimodal targets: "
                    f"pip uninstall {name}"
                )
    return found


def run(args: argparse.Namespace) -> int:
    """Print the report."""
    with waiting("vllm-ascend-spec info: loading PyTorch, to try the backends of the ops"):
        found = report()
    sys.stdout.write((json.dumps(found, indent=2) if args.json else info_text.text(found)) + "\n")
    return 0
