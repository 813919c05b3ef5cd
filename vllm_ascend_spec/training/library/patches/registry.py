"""Every patch of the trainer's library: which versions have the fault, and where it is needed.

A patch is a module here with ``apply`` and ``revert``, or with a base for our trainer's class,
which overrides the faulty methods.
"""

from __future__ import annotations

import importlib
from typing import TypeVar

from packaging.specifiers import SpecifierSet

from vllm_ascend_spec.patches.patch import Patch

Base = TypeVar("Base")

SPECULATORS = SpecifierSet("==0.9.*")
# Where a patch is needed: on a device, or as a base of our trainer.
CPU, CLASSES = "cpu", "classes"

PATCHES: tuple[Patch, ...] = (
    Patch("cpu_step_timer", "speculators", SPECULATORS, CPU),
    Patch("cpu_checkpoint_device", "speculators", SPECULATORS, CPU),
    Patch("cpu_processes", "speculators", SPECULATORS, CPU),
    Patch("cpu_trainer", "speculators", SPECULATORS, CLASSES),
)


def apply(device: str) -> None:
    """Apply the patches that a device needs; repeating has no effect."""
    for patch in PATCHES:
        if patch.stage == device and patch.reason_not_needed() is None:
            importlib.import_module(f"{__package__}.{patch.name}").apply()


def override(base: type[Base]) -> type[Base]:
    """Return the class with the overrides; an empty class if the installed version is right."""
    name = base.__module__.rpartition(".")[2]
    patch = next(each for each in PATCHES if each.name == name)
    if patch.reason_not_needed() is None:
        return base
    return type(base.__name__, (), {"__doc__": base.__doc__, "__module__": base.__module__})
