"""What an NPU needs: each trouble is one message with its remedy."""

from __future__ import annotations

from importlib import metadata
from types import SimpleNamespace

import pytest

from vllm_ascend_spec.devices import ascend_host, imports

WHOLE = {"vllm-ascend": "0.30.0rc2", "torch-npu": "2.10.0.post4", "torch": "2.10.0+cpu"}


def pretend(monkeypatch: pytest.MonkeyPatch, installed: dict[str, str]) -> None:
    def version(name: str) -> str:
        if name not in installed:
            raise metadata.PackageNotFoundError(name)
        return installed[name]

    fake = SimpleNamespace(version=version, PackageNotFoundError=metadata.PackageNotFoundError)
    monkeypatch.setattr(ascend_host, "metadata", fake)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"vllm-ascend": "0.30.0"},
        {"vllm-ascend": "0.30.1.post1"},
        {"torch-npu": "2.13.0", "torch": "2.13.0"},
        {"torch-npu": "2.10.0", "torch": "2.10.1"},
        {"torch-npu": "2.10rc1", "torch": "2.10.0rc2+cpu"},
        {"torch-npu": "2.13.0.dev20261101", "torch": "2.13.1.post1"},
    ],
)
def test_versions_that_fit(monkeypatch: pytest.MonkeyPatch, changes: dict[str, str]) -> None:
    pretend(monkeypatch, WHOLE | changes)
    assert ascend_host.host_problem() is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"vllm-ascend": None}, ["vllm-ascend, which is not installed", "pip install"]),
        ({"vllm-ascend": "0.29.0"}, ["vllm-ascend 0.29.0", "0.23 and 0.30", "pip install"]),
        ({"vllm-ascend": "0.300.0"}, ["vllm-ascend 0.300.0", "0.23 and 0.30"]),
        ({"torch-npu": None}, ["torch_npu, which is not installed", "2.10.0+cpu"]),
        ({"torch-npu": "nightly"}, ["torch_npu nightly", "torch 2.10.0+cpu"]),
        ({"torch": "2.13.0"}, ["torch_npu 2.10.0.post4", "torch 2.13.0", "Remedy"]),
    ],
)
def test_versions_that_do_not_fit(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, str | None], words: list[str]
) -> None:
    installed = {name: v for name, v in (WHOLE | changes).items() if v is not None}
    pretend(monkeypatch, installed)
    problem = ascend_host.host_problem()
    assert problem is not None
    for word in words:
        assert word in problem


@pytest.mark.parametrize(
    "error",
    [
        ImportError("libhccl.so: cannot open shared object file"),
        OSError("undefined symbol: aclrtSomething"),
        RuntimeError("ASCEND driver is missing\nand a long trace"),
    ],
)
def test_torch_npu_that_cannot_be_imported(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(name: str) -> None:
        raise error

    monkeypatch.setattr(imports, "importlib", SimpleNamespace(import_module=fail))
    ascend_host.import_problem.cache_clear()
    problem = ascend_host.import_problem()
    ascend_host.import_problem.cache_clear()
    assert problem is not None
    assert str(error).splitlines()[0] in problem
    assert "long trace" not in problem
    assert "set_env.sh" in problem


@pytest.mark.parametrize(
    ("stderr", "reason"),
    [
        (
            "Traceback\n  File x\nImportError: libhccl.so: cannot open shared object file\n\n"
            "The above exception ...\nRuntimeError: Failed to load the backend extension\n",
            "libhccl.so: cannot open shared object file",
        ),
        ("Segmentation fault", "status 1"),
    ],
)
def test_torch_npu_that_another_process_cannot_import(
    monkeypatch: pytest.MonkeyPatch, stderr: str, reason: str
) -> None:
    done = SimpleNamespace(returncode=1, stderr=stderr)
    monkeypatch.setattr(imports, "subprocess", SimpleNamespace(run=lambda *_, **__: done))
    problem = ascend_host.import_problem_elsewhere()
    assert problem is not None
    assert problem.startswith(f"torch_npu cannot be imported: {reason}. ")
    done.returncode = 0
    assert ascend_host.import_problem_elsewhere() is None
