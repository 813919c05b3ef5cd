"""Pretend that other distributions and plugins are installed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import metadata
from types import SimpleNamespace
from typing import Any

import pytest

from vllm_ascend_spec import versions
from vllm_ascend_spec.devices import plugins, registry

PLATFORM_PLUGINS = "vllm.platform_plugins"


def pretend_distributions(monkeypatch: pytest.MonkeyPatch, **installed: str) -> None:
    """Let our look-up find exactly these distributions; underscores stand for dashes."""
    by_name = {name.replace("_", "-"): version for name, version in installed.items()}

    def version(name: str) -> str:
        if name not in by_name:
            raise metadata.PackageNotFoundError(name)
        return by_name[name]

    def fields(name: str) -> dict[str, str]:
        return {"Name": name, "Version": version(name)}

    fake = SimpleNamespace(
        version=version, metadata=fields, PackageNotFoundError=metadata.PackageNotFoundError
    )
    monkeypatch.setattr(versions, "metadata", fake)


def pretend_platform_plugins(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Let our look-up find exactly these platform plugins."""

    def entry_points(*, group: str) -> list[SimpleNamespace]:
        if group != PLATFORM_PLUGINS:
            return []
        return [SimpleNamespace(name=name) for name in names]

    monkeypatch.setattr(plugins, "metadata", SimpleNamespace(entry_points=entry_points))


def pretend_devices(monkeypatch: pytest.MonkeyPatch, *present: str, **facts: Any) -> list[str]:
    """Make detection find exactly these devices; return a list of those it asked about.

    ``facts`` replace what their records say, e.g. ``host_problem``.
    """
    asked: list[str] = []

    def finder(name: str) -> Callable[[], bool]:
        def find() -> bool:
            asked.append(name)
            return name in present

        return find

    devices = {
        name: replace(device, find=finder(name), **(facts if name in present else {}))
        for name, device in registry.BUILT_IN.items()
    }
    monkeypatch.setattr(registry, "all_devices", lambda: devices)
    return asked
