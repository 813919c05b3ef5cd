"""What is looked at where a command or a block cannot be run here."""

from __future__ import annotations

import ast
import functools
import re
import shlex
import tempfile
from itertools import dropwhile
from pathlib import Path

from tests.docs.blocks import ROOT
from tests.docs.person import succeed
from tests.examples.manifests import MANIFESTS, read
from tests.metrics.dashboard import asked
from vllm_ascend_spec.devices import registry as devices
from vllm_ascend_spec.methods import registry as methods

# Runs a Python program up to the point where it has read its options, all of them.
PARSE_ONLY = """
import argparse, runpy, sys
from pathlib import Path
stock = argparse.ArgumentParser.parse_args
def parse_args(self, *given):
    stock(self, *given)
    print("parsed")
    sys.exit(0)
argparse.ArgumentParser.parse_args = parse_args
sys.argv = sys.argv[1:]
if sys.argv[0] == "-m":
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
else:
    sys.path.insert(0, str(Path(sys.argv[0]).resolve().parent))
    runpy.run_path(sys.argv[0], run_name="__main__")
"""


@functools.cache  # many documents have the same line
def bash_reads(text: str) -> None:
    """The shell's own reading of the line finds no fault."""
    succeed("bash", "-n", "-c", text)


def compiles(text: str) -> None:
    """Python reads it."""
    compile(text, "block", "exec")


def entry_point(text: str) -> None:
    """The group is one that a registry of ours reads."""
    groups = (methods.GROUP, devices.GROUP)
    assert any(f'\n[project.entry-points."{group}"]\n' in text for group in groups)


@functools.cache
def make(text: str) -> None:
    """The target is there, and everything that it depends on."""
    command, target = shlex.split(text)
    assert command == "make"
    printed = succeed("make", "--dry-run", target)
    for script in re.findall(r"examples/\S+\.py|\btests(?:/\S*)?(?=\s|$)", printed):
        assert (ROOT / script).exists(), script
    for module in re.findall(r"-m ((?:tests|ops)\.\S+)", printed):
        source = module_file(module)
        assert source.exists() or source.with_suffix("").is_dir(), module


@functools.cache
def pip(text: str) -> None:
    """pip knows the options, and versions and extras are those of pyproject.toml and .ci/."""
    bash_reads(text)
    # pip refuses an option that it does not know as soon as it meets it, so --help comes last.
    succeed("bash", "-c", f"{text} --help")
    pins = (ROOT / "pyproject.toml").read_text() + "".join(
        path.read_text() for path in sorted((ROOT / ".ci").glob("[gs]et*"))
    )
    for name, version in re.findall(r"([\w-]+)==([\w.]+)", text):
        names, signs = (name, name.replace("-", "_")), ("=", "==")
        spellings = {f"{spelt}{sign}{version}" for spelt in names for sign in signs}
        assert any(spelling in pins for spelling in spellings), f"{name}=={version}"
    for extra in re.findall(r"\.\[(\w+)\]", text):
        assert f"\n{extra} = [" in pins, extra


def image(text: str) -> None:
    """The image is that of the vllm-ascend we ask for."""
    bash_reads(text)
    (version,) = re.findall(r"/vllm-ascend:v(\S+)", text)
    assert f"vllm-ascend=={version}" in (ROOT / "pyproject.toml").read_text()


def dockerfile(text: str) -> None:
    """The file is there, and has the arguments that are given."""
    example_files(text)
    (path,) = re.findall(r"-f (\S+)", text)
    for argument in re.findall(r"--build-arg (\w+)=", text):
        assert f"\nARG {argument}=" in (ROOT / path).read_text(), argument


def example_files(text: str) -> None:
    """The shell reads it, and the examples that it names are there."""
    bash_reads(text)
    names = re.findall(r"examples/[\w./-]+", text)
    assert names
    for name in names:
        assert (ROOT / name).is_file(), name


def kubectl(text: str) -> None:
    """The shell reads it, and the files and objects that it names are those of the examples."""
    bash_reads(text)
    names = re.findall(r"examples/[\w./-]+", text)
    objects = set(re.findall(r"\b(deployment|pod)[/ ]([\w-]+)", text))
    assert names or objects or text == "kubectl apply -f -"
    for name in names:
        assert (ROOT / name).exists(), name
    documents = [found for path in MANIFESTS for found in read(path)]
    assert objects <= {(found["kind"].lower(), found["metadata"]["name"]) for found in documents}


@functools.cache
def python_parses(text: str) -> None:
    """The program takes these arguments."""
    command, *words = shlex.split(text)
    assert command == "python"
    source = module_file(words[1]) if words[0] == "-m" else ROOT / words[0]
    assert source.is_file(), source
    if "ArgumentParser" in source.read_text():
        assert "parsed" in succeed("python", "-c", PARSE_ONLY, *words)
    else:
        assert len(words) == 1, f"{words[0]} takes no arguments"


def module_file(name: str) -> Path:
    """Return where a module of the repository lies; a package's is what runs with ``-m``."""
    path = ROOT / Path(*name.split("."))
    return path / "__main__.py" if path.is_dir() else path.with_suffix(".py")


def tasks(text: str) -> None:
    """`bench accuracy` takes these lines for tasks."""
    from vllm_ascend_spec.bench.tasks import read_tasks

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tasks.jsonl"
        path.write_text(text)
        assert read_tasks("--tasks", path)


def our_parser(text: str) -> None:
    """Our command takes these arguments."""
    from vllm_ascend_spec.cli.main import build_parser

    command, *words = shlex.split(text)
    assert command == "vllm-ascend-spec"
    build_parser().parse_args(words)


def benchmark(text: str) -> None:
    """The developers' benchmarks take these arguments."""
    from tests.benchmarks.__main__ import PROGRAM, make_parser

    assert text.startswith(PROGRAM)
    make_parser().parse_args(shlex.split(text.removeprefix(PROGRAM)))


# The zoo's models in the place of those that the documents name.
OF_THE_ZOO = {
    "/models/DeepSeek-V3.2-W8A8": "target-deepseek-w8a8",
    "/models/DeepSeek-V3-W8A8": "target-deepseek-w8a8",
    "/models/Qwen3.5-27B-W8A8": "target-deepseek-w8a8",
    "/models/gpt-oss-120b-eagle3": "eagle3-gpt-oss",
    "/models/gpt-oss-120b": "target-gpt-oss",
    "/models/gemma-4-31B-it-assistant": "mtp-gemma4",
    "/models/gemma-4-31B-it": "target-gemma4",
    # Without torchvision a model that reads images is refused.
    "/models/qwen2.5-vl-7b-eagle3": "eagle3",
    "/models/Qwen2.5-VL-7B-Instruct": "target",
    "/models/Qwen3-30B-A3B-W8A8": "target-w8a8",
    "/models/qwen3-30b-a3b-eagle3": "eagle3",
    "/models/qwen3-8b-eagle3": "eagle3",
    "/models/eagle3-head": "eagle3",
    "/models/eagle-head": "eagle",
}


def vllm_parses(text: str) -> None:
    """vLLM's parser, our checks in it, takes these arguments."""
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    from vllm_ascend_spec.upstream.server import make_arg_parser

    target = "target-w8a8" if "--quantization ascend" in text else "target"
    for reader, ours in {**OF_THE_ZOO, "/models/Qwen3-8B": target}.items():
        text = text.replace(reader, str(ROOT / "examples" / "zoo" / ours))
    command, serve, *words = dropwhile(lambda word: re.match(r"\w+=", word), shlex.split(text))
    assert (command, serve) == ("vllm", "serve")
    given = make_arg_parser(FlexibleArgumentParser()).parse_args([*words, "--port", "0"])
    from vllm_ascend_spec.hooks import preflight

    preflight.resolve_args(given)
    assert given.speculative_config


def promql_parses(text: str) -> None:
    """It is a query, and of metrics of ours."""
    assert all(found.name.startswith("vllm:spec_decode_") for found in asked(text))


def in_test_examples(text: str) -> None:
    """The end-to-end tests run this program."""
    (program,) = shlex.split(text)[1:]
    assert f'"{program}"' in (ROOT / "tests" / "e2e" / "test_examples.py").read_text()


def in_simulator_setup(text: str) -> None:
    """The script that sets up the simulator's environment has this line, too."""
    *_, last = shlex.split(text)
    assert last in (ROOT / ".ci" / "setup-npu-sim").read_text()


def in_simulator_tests(text: str) -> None:
    """The simulator's own tests run the README's blocks that begin with this line."""
    tests = ROOT / "tests" / "npu_sim" / "tests" / "test_readme.py"
    assert text.splitlines()[0] in tests.read_text()


def emulator_names(text: str) -> None:
    """The excerpt is Python, and what it calls is there."""
    from tests.ops.emulator import build

    called = [
        node.func.id
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    assert {"Host", "build"} <= set(called)
    assert callable(build.Host)
    assert callable(build.build)


def launcher(text: str) -> None:
    """The launcher uses types and methods that the emulator has."""
    sources = [
        *(ROOT / "ops").rglob("emulator_host.cpp"),
        *(ROOT / "ops" / "emulator").rglob("*.h"),
    ]
    real = "".join(path.read_text() for path in sources)
    names = re.findall(
        r"emulator::Kernel|\bemulator_\w+|\.(?:input|rows|output|workspace|run)\(", text
    )
    assert len(names) > 5
    for name in names:
        assert name in real, name


def reference(text: str) -> None:
    """The simulator has a reference of this op, with this signature."""
    ast.parse(text)
    decorator = text.splitlines()[0]
    folder = ROOT / "tests" / "npu_sim" / "npu_sim" / "references"
    assert any(decorator in path.read_text() for path in folder.glob("*.py")), decorator
