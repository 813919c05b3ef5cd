"""The library that a device gets: built by our CMakeLists.txt, loaded by the real torch_npu."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from tests.ascend import binding
from tests.ascend.environment import NPU as ENVIRONMENT
from tests.ascend.environment import ROOT
from tests.ascend.kernels import NPU, on_cpu, on_npu
from tests.ops.ascendc.kernels import SOURCES
from tests.ops.batches import as_lists, make_drafts, make_sampled
from tests.ops.parity import assert_right, judge
from tests.ops.seeded import seeded_case
from tests.ops.trees import ties_of_result as ties_of_trees
from tests.ops.trees import tree_cases
from vllm_ascend_spec.ops import ascendc_library, grammar_mask, verify_greedy, verify_sample
from vllm_ascend_spec.ops.verify_seeded import verify_seeded
from vllm_ascend_spec.ops.verify_tree import verify_tree

CODE = 4242
Use = Callable[..., None]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the library once, whichever of pytest's workers comes first; return its folder."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "binding"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "soc.txt").exists():
            binding.build(folder)
    return folder


@pytest.fixture
def use(built: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Use]:
    """Return ``use(launch="")``: the package finds the library, its launchers do as told."""
    yield lambda launch="": binding.use(built, monkeypatch, launch)
    ascendc_library.library_problem.cache_clear()


def listing(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_it_finds_the_kernels_beside_it(built: Path) -> None:
    """CANN's ascendc.cmake sets CMAKE_SKIP_RPATH, which drops INSTALL_RPATH."""
    dynamic = listing("readelf", "--dynamic", "--wide", str(built / ascendc_library.LIBRARY.name))
    assert "libvllm_ascend_spec_kernels.so" in dynamic
    assert (built / "libvllm_ascend_spec_kernels.so").is_file()
    paths = re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", dynamic)
    assert "$ORIGIN" in ":".join(paths).split(":")


def test_a_call_does_not_wait_for_torch_npus_task_queue(built: Path) -> None:
    library = str(built / ascendc_library.LIBRARY.name)
    wanted = listing("nm", "--dynamic", "--undefined-only", "--demangle", library)
    assert "c10_npu::NPUStream::stream(bool) const" in wanted
    assert "c10_npu::NPUStream::stream() const" not in wanted


def test_other_generators_than_cann_can_read_are_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        ["cmake", "-G", "Ninja", "-S", str(SOURCES), "-B", str(tmp_path)],
        env={**os.environ, "PATH": binding.PATH},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "need the generator Unix Makefiles, this is Ninja" in " ".join(done.stderr.split())


def test_it_is_loaded_tried_and_chosen(use: Use) -> None:
    use()
    assert ascendc_library.problem("npu") is None
    assert isinstance(ascendc_library.library("npu"), ascendc_library._Built)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_greedy_verification_equals_the_reference(use: Use, dtype: torch.dtype) -> None:
    use()
    arguments = make_drafts([3, 0, 2], 301, seed=1)
    arguments["logits"] = arguments["logits"].to(dtype)
    result = verify_greedy(**on_npu(arguments), backend="ascendc")
    assert as_lists(on_cpu(result)) == as_lists(verify_greedy(**arguments, backend="reference"))


@pytest.mark.parametrize("rule", ["token", "block"])
def test_sampled_verification_equals_the_reference(use: Use, rule: str) -> None:
    use()
    arguments = make_sampled([2, 4, 0, 3], 211, seed=2, with_draft_probs=True) | {"rule": rule}
    result = verify_sample(**on_npu(arguments), backend="ascendc")
    assert_right([judge(arguments, on_cpu(result))], most_ties=1)


def test_seeded_verification_equals_the_reference(use: Use) -> None:
    use()
    arguments = seeded_case(make_sampled([2, 4, 0, 3], 211, seed=2), 0)
    result = verify_seeded(**on_npu(arguments), backend="ascendc")
    assert as_lists(on_cpu(result)) == as_lists(verify_seeded(**arguments, backend="reference"))


def test_verification_of_trees_equals_the_reference(use: Use) -> None:
    use()
    (case,) = tree_cases(1, seed=2, vocab_size=211)
    result = verify_tree(**on_npu(case), backend="ascendc")
    assert ties_of_trees(case, tuple(tensor.cpu() for tensor in result)) == 0


def test_masks_are_applied_in_place(use: Use) -> None:
    use()
    logits = torch.zeros(3, 70, device=NPU)
    words = torch.full((1, 3), 5, dtype=torch.int32, device=NPU)
    row = torch.tensor([1], dtype=torch.int32, device=NPU)
    grammar_mask(logits, words, row, backend="ascendc")
    assert logits.cpu()[1].isfinite().nonzero().flatten().tolist() == [0, 2, 32, 34, 64, 66]
    assert logits.cpu()[[0, 2]].eq(0).all()


def greedy() -> None:
    verify_greedy(**on_npu(make_drafts([3, 0, 2], 301, seed=1)), backend="ascendc")


def sample() -> None:
    verify_sample(**on_npu(make_sampled([2, 0], 301, seed=1)), backend="ascendc")


def seeded() -> None:
    arguments = seeded_case(make_sampled([2, 0], 301, seed=1), 0)
    verify_seeded(**on_npu(arguments), backend="ascendc")


def tree() -> None:
    (case,) = tree_cases(1, seed=2, vocab_size=211)
    verify_tree(**on_npu(case), backend="ascendc")


def mask() -> None:
    row = torch.zeros(1, dtype=torch.int32, device=NPU)
    grammar_mask(torch.zeros(1, 32, device=NPU), row.view(1, 1), row, backend="ascendc")


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("verify_greedy", greedy),
        ("verify_sample", sample),
        ("verify_seeded", seeded),
        ("verify_tree", tree),
        ("grammar_mask", mask),
    ],
)
def test_a_launch_that_fails_is_an_error_with_name_and_code(
    use: Use, monkeypatch: pytest.MonkeyPatch, name: str, call: Callable[[], None]
) -> None:
    use()
    call()
    monkeypatch.setenv(binding.LAUNCH, str(CODE))
    with pytest.raises(RuntimeError, match=f"(?s)spec_{name}.*error code is {CODE}"):
        call()


@pytest.mark.parametrize(
    ("launch", "reason"),
    [(str(CODE), f"a launch failed: .*{CODE}"), (binding.UNREGISTERED, "computed nothing")],
)
def test_kernels_that_do_not_run_are_noticed_when_they_are_loaded(
    use: Use, launch: str, reason: str
) -> None:
    """CANN's launchers return 0, too, where the kernels' binary was not registered."""
    use(launch)
    found = ascendc_library.problem("npu")
    assert found is not None
    assert re.search(reason, found)
    assert "build_ascendc --soc ascend910b3" in found
    assert "\n" not in found
    assert len(found) <= 300


IN_A_QUEUE = """
import os
import pytest
import torch
from pathlib import Path
from tests.ascend import binding
from tests.ascend.kernels import on_cpu, on_npu
from tests.ops.ascendc.kernels import SOURCES
from tests.ops.batches import as_lists, make_drafts
from vllm_ascend_spec.ops import ascendc_library, verify_greedy

binding.use(Path({folder!r}), pytest.MonkeyPatch(), launch="{code}")
assert "a launch failed" in ascendc_library.problem("npu")
os.environ[binding.LAUNCH] = ""
arguments = make_drafts([3, 0, 2], 301, seed=1)
given = on_npu(arguments)
torch.npu.synchronize()
ops = ascendc_library._Built()
result = on_cpu(ops.verify_greedy(*given.values()))
assert as_lists(result) == as_lists(verify_greedy(**arguments, backend="reference"))
os.environ[binding.LAUNCH] = "{code}"
try:
    on_cpu(ops.verify_greedy(*given.values()))
except RuntimeError as error:
    print("raised", error)
"""


def test_in_a_task_queue_nobody_reads_what_a_failed_launch_left(
    built: Path,
) -> None:
    """The trial at load may fail and leave the queue as it is; a later failure is raised."""
    script = IN_A_QUEUE.format(folder=str(built), code=CODE)
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **ENVIRONMENT, "TASK_QUEUE_ENABLE": "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    # Within the call or behind it, as the queue has come by then.
    _, was_raised, error = done.stdout.partition("raised")
    assert was_raised, done.stdout + done.stderr[-4000:]
    assert "spec_verify_greedy" in error
