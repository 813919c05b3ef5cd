"""What torch.compile made for a CPU is loaded at the next start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from vllm.compilation.counter import compilation_counter
from vllm.compilation.decorators import support_torch_compile
from vllm.config import CompilationConfig, CompilationMode, VllmConfig, set_current_vllm_config

from tests.marks import requires_cpu_build
from tests.patches.cases import TakeOut
from vllm_ascend_spec.patches.upstream import cpu_compiled_code as patch

pytestmark = requires_cpu_build

ROWS = torch.arange(12, dtype=torch.float32).view(4, 3)


@support_torch_compile(dynamic_arg_dims={"x": 0})
class Doubled(torch.nn.Module):
    """A model of one parameter, which the compiled code must not hold."""

    def __init__(self, *, vllm_config: VllmConfig, factor: float, prefix: str = "") -> None:
        super().__init__()
        self.factor = torch.nn.Parameter(torch.tensor(factor), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # x: [rows, 3]
        return torch.sin(x) * self.factor


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return ``start(factor) -> (compiled, loaded)``: how often, at one start of the model."""
    monkeypatch.setenv("VLLM_CACHE_ROOT", str(tmp_path))
    # vLLM sets it, and leaves it set.
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))

    def start(factor: float) -> tuple[int, int]:
        compilation = CompilationConfig(
            mode=CompilationMode.DYNAMO_TRACE_ONCE, backend="inductor", cudagraph_capture_sizes=[]
        )
        config = VllmConfig(compilation_config=compilation)
        before = compilation_counter.num_aot_compiles, compilation_counter.num_aot_artifacts_loaded
        with set_current_vllm_config(config), torch.inference_mode():
            model = Doubled(vllm_config=config, factor=factor)
            for rows in (ROWS, ROWS[:2]):
                torch.testing.assert_close(model(rows), torch.sin(rows) * factor)
        return (
            compilation_counter.num_aot_compiles - before[0],
            compilation_counter.num_aot_artifacts_loaded - before[1],
        )

    return start


def test_stock_fault_and_patch(
    start: Any, take_out: TakeOut, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is code for another vector unit loaded."""
    take_out(patch)
    assert start(2.0) == (1, 0)
    assert start(2.0) == (1, 0), "vLLM loads compiled code now: drop the patch"
    patch.apply()
    # Saved under a name without the CPU's vector unit, so it is compiled once more.
    assert start(2.0) == (1, 0)
    assert start(3.0) == (0, 1)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "ANOTHER")
    assert start(2.0) == (1, 0)
    assert start(2.0) == (0, 1)


def test_names_tell_models_of_other_shapes_apart() -> None:
    """Guards are dropped, so the name alone says whose code it is."""
    from vllm.config import ModelConfig

    from tests.zoo import TARGET

    one = ModelConfig(model=TARGET, dtype="float32")
    other = ModelConfig(model=TARGET, dtype="float32")
    assert one.compute_hash() == other.compute_hash()
    other.hf_config.rms_norm_eps *= 2
    assert one.compute_hash() != other.compute_hash()
