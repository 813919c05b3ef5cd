"""The schemas of vllm-ascend's own ops."""

import json
import os
import subprocess
import sys

import pytest
import torch
from npu_sim import custom_ops
from npu_sim.custom_ops import CustomOpsError

SOURCE = r"""
#ifdef ASCEND_PLATFORM_310P
TORCH_LIBRARY_EXPAND(X, ops) {
    ops.def("only_310(Tensor x) -> Tensor");
}
#else
// ops.def("commented_out(Tensor x) -> Tensor");
TORCH_LIBRARY_EXPAND(X, ops)
{
    ops.def("plain(Tensor x) -> Tensor");
    ops.impl("plain", torch::kPrivateUse1, &plain);
    ops.def(
        "split(Tensor x, "   // the first half
        "   str layout=\"TND\", *, "
        /* the second */ "int n=1)"
        " -> (Tensor y, Tensor z)");
    ops.def("split.list(Tensor[] x) -> Tensor");
    ops.def("plain(Tensor x) -> Tensor");
}
#endif
"""


def test_parse():
    assert custom_ops.parse(SOURCE) == [
        "plain(Tensor x) -> Tensor",
        'split(Tensor x, str layout="TND", *, int n=1) -> (Tensor y, Tensor z)',
        "split.list(Tensor[] x) -> Tensor",
    ]


def test_a_missing_source_says_where_it_was_looked_for(monkeypatch, tmp_path):
    monkeypatch.setenv(custom_ops.SOURCE_VARIABLE, str(tmp_path))
    with pytest.raises(CustomOpsError, match=f"in {tmp_path}: set NPU_SIM_VLLM_ASCEND_SOURCE"):
        custom_ops.binding_file()


def test_by_default_it_is_looked_for_in_the_environment(monkeypatch, tmp_path):
    monkeypatch.delenv(custom_ops.SOURCE_VARIABLE, raising=False)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    with pytest.raises(CustomOpsError, match=str(tmp_path / "src" / "vllm-ascend")):
        custom_ops.binding_file()
    (tmp_path / "src" / "vllm-ascend" / "csrc").mkdir(parents=True)
    path = tmp_path / "src" / "vllm-ascend" / custom_ops.BINDING
    path.write_text(SOURCE)
    assert custom_ops.binding_file() == path


@pytest.fixture
def define(monkeypatch, tmp_path):
    """Give a function that defines the ops of a source in a namespace of its own."""

    def call(source):
        (tmp_path / "csrc").mkdir(exist_ok=True)
        (tmp_path / custom_ops.BINDING).write_text(source)
        return custom_ops.define()

    monkeypatch.setenv(custom_ops.SOURCE_VARIABLE, str(tmp_path))
    monkeypatch.setattr(custom_ops, "NAMESPACE", f"npu_sim_{tmp_path.name}")
    monkeypatch.setattr(custom_ops, "_defined", [])
    monkeypatch.setattr(custom_ops, "_libraries", [])
    return call


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("// nothing", "defines no ops"),
        ('ops.def("f(Tensr x) -> Tensor");', r"cannot define 'f\(Tensr x\) -> Tensor'"),
    ],
)
def test_an_unexpected_source(define, source, reason):
    with pytest.raises(CustomOpsError, match=f"{custom_ops.BINDING}.*{reason}"):
        define(source)
    assert custom_ops._defined == []


def test_defining_twice_is_defining_once(define):
    names = define(SOURCE)
    space = custom_ops.NAMESPACE
    assert names == [f"{space}::plain", f"{space}::split", f"{space}::split.list"]
    assert define("// not read again") is names
    assert str(getattr(torch.ops, space).split.default._schema).startswith(f"{space}::split(")


DEFINED = """
import json, torch
from npu_sim import custom_ops
from npu_sim.references import load_all
names = custom_ops.define()
ours = [name for name in load_all() if name.startswith("_C_ascend::")]
x, w = torch.empty(3, 4, device="meta"), torch.empty(4, device="meta")
traced = torch.ops._C_ascend.npu_add_rms_norm_bias(x, x, w)
print(json.dumps({
    "missing": [name for name in ours if name not in names],
    "traced": [list(t.shape) for t in traced],
    "card": torch.ops._C_ascend.get_physical_device_id(3),
    "view": torch.ops._C_ascend.get_npu_view_from_cpu_tensor(torch.ones(1)),
}))
"""


def test_the_installed_vllm_ascend_has_every_op_that_has_a_reference():
    try:
        custom_ops.binding_file()
    except CustomOpsError as error:
        pytest.skip(str(error))
    # In a process of its own: the namespace may be defined here already, and cannot be taken back.
    done = subprocess.run(
        [sys.executable, "-c", DEFINED],
        env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "missing": [],
        "traced": [[3, 4], [3, 1], [3, 4]],
        "card": 3,
        "view": None,
    }
