"""How each command and each language is treated. What stands in no row fails the tests.

A row is for the commands that begin with its key; the longest key that fits counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.docs import checks
from tests.docs.blocks import Block, Command


@dataclass(frozen=True)
class Run:
    """Run to its end; the status has to be 0.

    Attributes:
        says: what it has to print to stdout.
    """

    says: str = ""


@dataclass(frozen=True)
class Serve:
    """Start the server, ask it, and stop it."""


@dataclass(frozen=True)
class NotRun:
    """Read by a shell, not run.

    Attributes:
        why: the reason.
        check: what is looked at instead; it gets the command's or the block's text.
    """

    why: str
    check: Callable[[str], None]


COMMANDS: dict[str, Run | Serve | NotRun] = {
    "vllm serve": Serve(),
    "PYTHONPATH=examples vllm serve": Serve(),
    "vllm-ascend-spec check": Run("lossless                yes"),
    "VLLM_API_KEY=change-me vllm serve": NotRun(
        "asks for a key; tests/e2e/test_seen.py serves and sends one", checks.vllm_parses
    ),
    "vllm-ascend-spec plan": Run(
        "sizes: [12, 36, 72, 120, 184, 260, 352, 456, 576, 712, 860, 1024]"
    ),
    "vllm-ascend-spec env": Run(),
    'eval "$(vllm-ascend-spec completion bash)"': Run(),
    "vllm-ascend-spec migrate": Run('"method": "eagle", "model": "examples/zoo/eagle"'),
    "ASCEND_SPEC_MODEL=": Run('"method": "eagle", "model": "examples/zoo/eagle"'),
    'eval "$(vllm-ascend-spec env)"': Run(),
    'eval "$(vllm-ascend-spec env)" && pytest tests/npu': Run("skipped"),
    "python -m pytest tests/cuda": Run("skipped"),
    "make demo": NotRun("minutes; tests/e2e/test_examples.py runs what it runs", checks.make),
    "make test": NotRun("an hour, and it would run itself", checks.make),
    "python examples/demo_serve.py": NotRun(
        "tests/e2e/test_examples.py runs it", checks.in_test_examples
    ),
    "python examples/offline_eagle.py": NotRun(
        "tests/e2e/test_examples.py runs it", checks.in_test_examples
    ),
    "python examples/zoo/quantize.py": NotRun(
        "writes into the examples; tests/e2e/test_w8a8.py quantizes", checks.python_parses
    ),
    "python examples/zoo/quantized.py": NotRun(
        "writes documents; tests/docs/test_quantized.py compares them", checks.python_parses
    ),
    "python examples/zoo/train.py": NotRun("an hour", checks.python_parses),
    "python examples/zoo/evaluate.py": NotRun("an hour", checks.python_parses),
    "python examples/zoo/picking.py": NotRun("a quarter of an hour", checks.python_parses),
    "python examples/zoo/report.py": NotRun(
        "writes documents; tests/docs/test_acceptance.py compares them", checks.python_parses
    ),
    "vllm-ascend-spec train": NotRun(
        "minutes; tests/training/test_train.py runs small ones", checks.our_parser
    ),
    "vllm-ascend-spec bench": NotRun(
        "minutes; tests/e2e/test_examples.py, tests/bench and tests/cli run small ones",
        checks.our_parser,
    ),
    "vllm-ascend-spec bench sweep --record": Run(),
    "python -m tests.benchmarks": NotRun(
        "minutes; tests/bench and tests/cli run small ones", checks.benchmark
    ),
    "pip install": NotRun("changes the environment that the tests run in", checks.pip),
    "pip uninstall": NotRun("changes the environment that the tests run in", checks.pip),
    "pip install torch==2.13.0": NotRun("sets up another environment", checks.pip),
    "git clone": NotRun("REPOSITORY is for the reader to fill in", checks.bash_reads),
    "docker run": NotRun("needs docker and an NPU", checks.image),
    "docker build": NotRun(
        "needs docker; tests/examples runs the steps of the CPU's", checks.dockerfile
    ),
    "kubectl": NotRun("needs a cluster; tests/examples checks the files", checks.kubectl),
    "IMAGE=TAG": NotRun("needs docker and an NPU; tests/examples runs it", checks.example_files),
    "source": NotRun("needs CANN", checks.bash_reads),
    "python -m vllm_ascend_spec.ops.build_ascendc": NotRun("needs CANN", checks.python_parses),
    "python -m vllm_ascend_spec.conformance": NotRun(
        "of a version to come, or a minute; tests/upstream/test_conformance.py runs it",
        checks.python_parses,
    ),
    ".ci/setup-version": NotRun(
        "sets up another environment; make test runs it", checks.bash_reads
    ),
    ".venv-0.34/bin/python": NotRun("of a version to come; make test runs it", checks.bash_reads),
    "vllm serve /models/": NotRun("needs an NPU; tests/ascend serves", checks.vllm_parses),
    "export TORCH_DEVICE_BACKEND_AUTOLOAD=0": NotRun(
        "for the simulator's own environment", checks.in_simulator_setup
    ),
    "unset TORCH_DEVICE_BACKEND_AUTOLOAD": NotRun(
        "for the simulator's own environment", checks.in_simulator_setup
    ),
    "pip install --no-deps torch-npu": NotRun("sets up the simulator's environment", checks.pip),
    "python -m npu_sim.install": NotRun(
        "needs the simulator's environment; .ci/setup-npu-sim runs it", checks.in_simulator_setup
    ),
    'python -c "import torch;': NotRun(
        "needs the simulator's environment; its tests add tensors on the device", checks.bash_reads
    ),
}

# Blocks in other languages than the shell's, by language and first line. Python that is not here
# is saved and run.
BLOCKS: dict[tuple[str, str], NotRun] = {
    ("cpp", '#include "emulator/launch.h"'): NotRun(
        "has gaps; tests/ops/emulator compiles the whole", checks.launcher
    ),
    ("python", "host = Host(build(source, include=[...]))"): NotRun(
        "has gaps; tests/ops/emulator calls the whole", checks.emulator_names
    ),
    ("promql", ""): NotRun(
        "for Prometheus; tests/metrics/test_dashboard.py parses it", checks.promql_parses
    ),
    ("python", "from npu_sim import counters"): NotRun(
        "needs the simulator; tests/npu_sim/tests/test_readme.py runs it", checks.in_simulator_tests
    ),
    ("python", '"""The platform of our box'): NotRun(
        "vLLM imports a platform; tests/devices/test_added_device.py runs it", checks.compiles
    ),
    ("json", '{"prompt": "2 + 2 ="'): NotRun(
        "a line of a file; tests/bench/test_accuracy.py asks such", checks.tasks
    ),
    ("toml", '[project]\nname = "bigram-drafts"'): NotRun(
        "of a package of its own; tests/e2e/test_added_method.py installs it", checks.entry_point
    ),
    ("toml", '[project]\nname = "box-device"'): NotRun(
        "of a package of its own; tests/devices/test_added_device.py installs it",
        checks.entry_point,
    ),
    ("python", '@reference("npu::npu_swiglu")'): NotRun(
        "an excerpt; the simulator has the whole", checks.reference
    ),
}


def how(command: Command) -> Run | Serve | NotRun | None:
    """Return the row of a command."""
    key = key_of(command)
    return None if key is None else COMMANDS[key]


def key_of(command: Command) -> str | None:
    """Return the key of a command's row."""
    keys = [key for key in COMMANDS if command.text.startswith(key)]
    return max(keys, key=len, default=None)


def row_of(block: Block) -> tuple[str, str] | None:
    """Return the key of a block's row."""
    keys = (key for key in BLOCKS if key[0] == block.language and block.text.startswith(key[1]))
    return next(keys, None)
