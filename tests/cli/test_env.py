"""The line that an Ascend host needs, and the server that is started with it."""

from __future__ import annotations

from importlib import metadata
from types import SimpleNamespace
from typing import Any

import pytest

from tests.installed import pretend_devices
from vllm_ascend_spec.cli import env, serve
from vllm_ascend_spec.cli.main import main
from vllm_ascend_spec.devices import plugins, select

GENERAL, PLATFORM = "vllm.general_plugins", "vllm.platform_plugins"
OURS = [(PLATFORM, "ascend_spec", "vllm-ascend-spec"), (GENERAL, "ascend_spec", "vllm-ascend-spec")]
THEIRS = [
    (PLATFORM, "ascend", "vllm-ascend"),
    (GENERAL, "ascend_model", "vllm_ascend"),
    (GENERAL, "ascend_kv_connector", "vllm_ascend"),
]
OTHERS = [
    (GENERAL, "lora_resolver", "vllm"),
    ("vllm.stat_logger_plugins", "my_logger", "mine"),
    ("vllm.endpoint_plugins", "my_routes", "mine"),
    ("console_scripts", "vllm", "vllm"),
]


class EntryPoints(list):  # type: ignore[type-arg]
    """As importlib's."""

    @property
    def groups(self) -> set[str]:
        return {entry.group for entry in self}


def pretend(monkeypatch: pytest.MonkeyPatch, installed: list[tuple[str, str, str]]) -> None:
    entries = [
        SimpleNamespace(group=group, name=name, dist=SimpleNamespace(name=dist))
        for group, name, dist in installed
    ]

    def entry_points(**wanted: Any) -> EntryPoints:
        return EntryPoints(e for e in entries if wanted.get("group") in (None, e.group))

    fake = SimpleNamespace(
        entry_points=entry_points, PackageNotFoundError=metadata.PackageNotFoundError
    )
    monkeypatch.setattr(env, "metadata", fake)
    monkeypatch.setattr(plugins, "metadata", fake)
    monkeypatch.delenv("VLLM_PLUGINS", raising=False)


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["env"]) == 0
    return capsys.readouterr().out


def test_ascend_host(monkeypatch, capsys) -> None:
    """All but vllm-ascend's platform; routes over HTTP stay off unless a person names them."""
    pretend(monkeypatch, OURS + THEIRS + OTHERS)
    assert printed(capsys) == (
        "export VLLM_PLUGINS=ascend_kv_connector,ascend_model,ascend_spec,lora_resolver,my_logger\n"
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("", "ascend_kv_connector,ascend_model,ascend_spec"),
        ("ascend", "ascend_kv_connector,ascend_model,ascend_spec"),
        ("my_routes, ascend", "my_routes,ascend_kv_connector,ascend_model,ascend_spec"),
        ("ascend_model,ascend_spec", "ascend_model,ascend_spec,ascend_kv_connector"),
    ],
)
def test_what_the_variable_names_is_kept(monkeypatch, capsys, given: str, expected: str) -> None:
    pretend(monkeypatch, OURS + THEIRS + OTHERS)
    monkeypatch.setenv("VLLM_PLUGINS", given)
    assert printed(capsys) == f"export VLLM_PLUGINS={expected}\n"


def test_line_is_a_fixed_point(monkeypatch) -> None:
    pretend(monkeypatch, OURS + THEIRS + OTHERS)
    once = env.plugins({})
    assert once is not None
    assert env.plugins({"VLLM_PLUGINS": once}) == once


def test_ours_is_chosen_with_the_line_and_not_without(monkeypatch) -> None:
    pretend(monkeypatch, OURS + THEIRS + OTHERS)
    pretend_devices(monkeypatch, "npu", platform="ours", host_problem=lambda: None)
    assert select.select_platform().platform is None
    monkeypatch.setenv("VLLM_PLUGINS", str(env.plugins({})))
    assert select.select_platform() == select.DeviceChoice("ours")


def test_without_vllm_ascend_there_is_nothing_to_set(monkeypatch, capsys) -> None:
    pretend(monkeypatch, OURS + OTHERS)
    assert main(["env"]) == 0
    told = capsys.readouterr()
    assert told.out == ""
    assert "nothing has to be set" in told.err


def test_serve_sets_the_line(monkeypatch) -> None:
    pretend(monkeypatch, OURS + THEIRS)
    expected = "ascend_kv_connector,ascend_model,ascend_spec"
    assert serve.environment({})["VLLM_PLUGINS"] == expected
    assert "VLLM_PLUGINS" not in serve.environment({"VLLM_PLUGINS": expected})


@pytest.mark.parametrize("check", ["host_problem", "import_problem_elsewhere"])
def test_serve_refuses_a_broken_host_in_one_line(monkeypatch, capsys, check: str) -> None:
    pretend(monkeypatch, OURS + THEIRS)
    monkeypatch.setattr(serve.versions, "require_vllm", lambda: ("vllm", "0.30.0"))
    facts = {"host_problem": lambda: None, check: lambda: "it is broken; repair it"}
    pretend_devices(monkeypatch, "npu", platform="ours", **facts)
    monkeypatch.setattr(serve.os, "environ", {})
    monkeypatch.setattr(serve.os, "execv", lambda *_: pytest.fail("a server was started"))
    assert main(["serve", "model"]) == 2
    assert capsys.readouterr().err == "vllm-ascend-spec serve: error: it is broken; repair it\n"
