"""What the wheel has works installed: nothing in it needs the checkout that it was built from."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.wheel import NO_COMPILER, ROOT, call_hook, copy_source, unpack

NAME = "vllm_ascend_spec"
# Distributions of an extra for another device; modules that need one cannot be imported without it.
# The last is what a vLLM for CUDA has of its own.
OTHERS = ("vllm_ascend", "torch_npu", "vllm._C_stable_libtorch")
ABSENT = {name for name in OTHERS if importlib.util.find_spec(name) is None}
# Top folders of the checkout that no wheel has.
CHECKOUT_ONLY = {"tests", "ops", "examples", "npu_sim"}
# What looks for the checkout, and says in one line, or in a record, that there is none.
LOOKS_FOR_IT = {"bench/provenance.py", "ops/build_ascendc.py"}

# Imports every module of the wheel; says which files were opened and what could not be imported.
IMPORT_ALL = """
import importlib, json, os, sys
opened = []
sys.addaudithook(lambda event, args: opened.append(args[0]) if event == "open" else None)
from vllm.platforms import current_platform  # first: vLLM loads a platform, nobody else does
current_platform.device_type
failed = {}
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ImportError as error:
        failed[name] = error.name
files = [module.__file__ for name, module in sys.modules.items() if name.startswith("NAME")]
opened = [os.path.abspath(path) for path in opened if isinstance(path, str)]
print("\\nresult: " + json.dumps({"failed": failed, "opened": opened, "files": files}))
""".replace("NAME", NAME)

pytestmark = pytest.mark.skipif(
    not importlib.util.find_spec("setuptools"), reason="needs setuptools"
)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of an unpacked wheel; without the C++ backend, which is quicker."""
    source = copy_source(tmp_path_factory.mktemp("wheel") / "source")
    return unpack(call_hook("build_wheel", source, **NO_COMPILER))


def run(installed: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the wheel alone, in an empty folder."""
    place = installed.parent / "empty"
    place.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": str(installed), "PYTHONSAFEPATH": "1"},
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def modules_of(installed: Path) -> list[str]:
    paths = (path.relative_to(installed) for path in sorted((installed / NAME).rglob("*.py")))
    parts = (path.with_suffix("").parts for path in paths)
    return [".".join(names[:-1] if names[-1] == "__init__" else names) for names in parts]


def test_every_module_can_be_imported_and_opens_nothing_of_the_checkout(installed: Path) -> None:
    done = run(installed, "-c", IMPORT_ALL, *modules_of(installed))
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("result: "))
    result = json.loads(line.removeprefix("result: "))
    assert {name: why for name, why in result["failed"].items() if why not in ABSENT} == {}
    assert all(Path(file).is_relative_to(installed) for file in result["files"])
    assert len(result["files"]) > 100
    ours = [ROOT / "vllm_ascend_spec", *(ROOT / name for name in CHECKOUT_ONLY)]
    assert [path for path in result["opened"] if any(map(Path(path).is_relative_to, ours))] == []


def test_files_that_are_no_modules_are_in_it(installed: Path) -> None:
    assert (installed / NAME / "page" / "spec.html").is_file()


def leaves_the_package(text: str, place: Path) -> list[str]:
    """Return what of a module's source is about the checkout.

    Args:
        text: the source.
        place: its path below the folder that holds the package.
    """
    found = []
    for node in ast.walk(ast.parse(text)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or ""]
        found += [f"imports {name}" for name in names if name.split(".")[0] in CHECKOUT_ONLY]
        if (
            isinstance(node, ast.Subscript)
            and isinstance(node.value, ast.Attribute)
            and node.value.attr == "parents"
            and isinstance(node.slice, ast.Constant)
            and node.slice.value >= len(place.parts) - 1
        ):
            found.append(ast.unparse(node))
    return found


def test_no_module_reads_files_outside_the_package(installed: Path) -> None:
    found = {
        path.relative_to(installed / NAME).as_posix(): leaves_the_package(
            path.read_text(), path.relative_to(installed)
        )
        for path in (installed / NAME).rglob("*.py")
    }
    assert {place for place, places in found.items() if places} == LOOKS_FOR_IT


def test_the_check_sees_what_it_should() -> None:
    place = Path(NAME, "bench", "x.py")
    source = (
        "import os, tests.x\nfrom ops.emulator import library\nfrom . import ops\n"
        "a = Path(__file__).parents[1]\nb = Path(__file__).parents[2] / 'tests'\n"
    )
    assert leaves_the_package(source, place) == [
        "imports tests.x",
        "imports ops.emulator",
        "Path(__file__).parents[2]",
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("-c", "from vllm_ascend_spec.cli.main import main; main(['info'])"), ""),
        (
            ("-m", "vllm_ascend_spec.ops.build_ascendc", "--soc", "ascend910b1", "--cann", "/"),
            "run this in a checkout",
        ),
    ],
)
def test_what_looks_for_a_checkout_does_without_or_says_so(
    installed: Path, arguments: tuple[str, ...], words: str
) -> None:
    done = run(installed, *arguments)
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == (1 if words else 0)
    assert words in done.stderr
