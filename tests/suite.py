"""Run the suite part by part, and say at the end what took longest.

``make test`` runs this module, with any Python that is there: parts before the tests and beside the
first of them set up the environments. Parts of one stage run at the same time, and a stage begins
when the one before it has ended. If a set-up fails, no further stage runs; if a test fails, the
other parts still do.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
SIMULATOR = ROOT / "tests" / "npu_sim"
NUM_SLOWEST = 15
NUM_SLOWEST_FILES = 40
# Other versions of vLLM and of vllm-ascend, of which the tests marked "core" run.
OTHER_VLLM, OTHER_VLLM_ASCEND = ("0.23", "0.32"), ("0.23",)
PARTS = (
    "package",
    "simulator",
    "npu",
    *(f"vllm-{minor}" for minor in OTHER_VLLM),
    *(f"vllm-ascend-{minor}" for minor in OTHER_VLLM_ASCEND),
)
# What of tests/upstream knows vllm-ascend, which only the environments with an NPU have. By day the
# rest runs in the first environment alone: it reads our files, the index, and the same vLLM.
OF_VLLM_ASCEND = tuple(
    f"tests/upstream/{name}"
    for name in (
        "test_vllm_ascend_tests.py",
        "test_capture_sizes.py",
        "test_conformance.py::test_what_is_installed_fits",
        "test_surface.py::test_what_we_rely_on_is_there",
        "test_citations.py::test_every_citation_leads_somewhere",
    )
)
# These run beside each other, each with half of the processes: their tests are few, and otherwise
# every process would import vLLM for a handful, and the longest test of a part would run alone. Two
# run at once, and the next one begins when the first of them ends: those that take long come first.
BESIDE = (("vllm-0.32", "vllm-0.23", "simulator", "vllm-ascend-0.23"),)
# make sets them for what it starts; a make of our own must not read them. And where Python keeps
# nothing that it has compiled, each import of vLLM takes twice as long: pip compiles nothing.
NOT_GIVEN = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "PYTHONDONTWRITEBYTECODE")


@dataclass(frozen=True)
class Part:
    """One command.

    Attributes:
        name: what it is called in the list.
        command: what runs.
        folder: where it runs.
        tests: whether it is pytest, which is then asked for the time of each test.
        needed: whether the suite fails if it does.
        venv: the environment that its tests run in.
        base: the environment that this one stands beside, see ``.ci/setup-version``.
        environment: variables that are set for it.
    """

    name: str
    command: Sequence[str]
    folder: Path = ROOT
    tests: bool = False
    needed: bool = True
    venv: str = ""
    base: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Result:
    """How a part ended.

    Attributes:
        part: which.
        status: its exit status.
        seconds: from its start to its end.
        times: seconds of each test, set-up and tear-down included.
    """

    part: Part
    status: int
    seconds: float
    times: dict[str, float] = field(default_factory=dict)

    @property
    def has_failed(self) -> bool:
        """Whether the suite fails because of it."""
        return self.status != 0 and self.part.needed


def run(part: Part, records: Path, *, alone: bool = True) -> Result:
    """Run one part and show what it prints, at its end if others run beside it."""
    record = records / f"{part.name.replace(' ', '-')}.xml"
    command = [*part.command, *([f"--junitxml={record}"] if part.tests else [])]
    print(f"== {part.name}: {shlex.join(command)}", flush=True)
    plain = {name: value for name, value in os.environ.items() if name not in NOT_GIVEN}
    plain |= part.environment
    started = time.monotonic()
    output = None if alone else subprocess.PIPE
    done = subprocess.run(
        command, cwd=part.folder, env=plain, stdout=output, stderr=subprocess.STDOUT, check=False
    )
    seconds = time.monotonic() - started
    if done.stdout:
        print(f"== {part.name}\n{done.stdout.decode(errors='replace')}", flush=True)
    times = read_times(record, part.folder) if record.is_file() else {}
    return Result(part, done.returncode, seconds, times)


def read_times(record: Path, folder: Path) -> dict[str, float]:
    """Return the seconds of each test of a JUnit record; names begin with the file, from ROOT."""
    times: dict[str, float] = defaultdict(float)
    for case in ElementTree.parse(record).iter("testcase"):
        words = case.get("classname", "").split(".")
        modules = [word for word in words if not word.startswith("Test")]
        path = folder.relative_to(ROOT).joinpath(*modules).with_suffix(".py")
        name = "::".join([str(path), *words[len(modules) :], case.get("name", "")])
        times[name] += float(case.get("time", 0))
    return dict(times)


def run_stages(stages: Sequence[Sequence[Part]], at_once: int, records: Path) -> list[Result]:
    """Run stage after stage, and stop after one whose set-up failed."""
    results: list[Result] = []
    for stage in stages:
        with ThreadPoolExecutor(at_once) as pool:
            running = [
                pool.submit(run, part, records, alone=shows_at_once(part, stage)) for part in stage
            ]
            ended = [future.result() for future in running]
        results += ended
        if any(result.has_failed and not result.part.tests for result in ended):
            break
    return results


def shows_at_once(part: Part, stage: Sequence[Part]) -> bool:
    """Tell whether a part shows what it prints as it runs: the only one, or the one with tests."""
    return len(stage) == 1 or (part.tests and sum(other.tests for other in stage) == 1)


def report(results: Sequence[Result], seconds: float) -> Iterator[str]:
    """Yield the lines of the list at the end."""
    every = {name: time for result in results for name, time in result.times.items()}
    files: dict[str, float] = defaultdict(float)
    folders: dict[str, float] = defaultdict(float)
    for name, spent in every.items():
        file = name.partition("::")[0]
        files[file] += spent
        folders[str(Path(file).parent)] += spent
    if every:
        yield f"== longest tests, of {len(every)}"
        yield from lines(every, NUM_SLOWEST)
        yield f"== longest files, of {len(files)}, the seconds of all processes together"
        yield from lines(files, NUM_SLOWEST_FILES)
        yield "== folders"
        yield from lines(folders)
    yield "== parts"
    for result in results:
        ended = "" if result.status == 0 else f"  ended with {result.status}"
        ended += "" if result.part.needed or not ended else ", not needed"
        yield f"{clock(result.seconds):>8}  {result.part.name}{ended}"
    yield f"{clock(seconds):>8}  all"


def lines(times: dict[str, float], most: int | None = None) -> list[str]:
    """Return one line for each name, the longest first."""
    ordered = sorted(times.items(), key=lambda item: -item[1])
    return [f"{seconds:7.1f}s  {name}" for name, seconds in ordered[:most]]


def clock(seconds: float) -> str:
    """Return a time as minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def set_up(options: argparse.Namespace, parts: Sequence[Part]) -> list[list[Part]]:
    """Return the stages that make the environments of some parts, each before those beside it."""
    stages = [
        [options.venv],
        [options.npu_venv] + [part.venv for part in parts if part.base == options.venv],
        [part.venv for part in parts if part.base == options.npu_venv],
    ]
    wanted = {options.venv, *(part.base for part in parts), *(part.venv for part in parts)}
    given = [f"VENV={options.venv}", f"NPU_VENV={options.npu_venv}", f"PYTHON={options.python}"]
    made: set[str] = set()

    def make(name: str, target: str, **more: bool) -> Part:
        command = [options.make, "--no-print-directory", *given, target]
        return Part(f"set-up of {name}", command, **more)

    def beside_each_other(venvs: Sequence[str]) -> list[Part]:
        new = [venv for venv in dict.fromkeys(venvs) if venv in wanted - made]
        made.update(new)
        return [make(venv, f"{venv}/.installed") for venv in new]

    first, *others = map(beside_each_other, stages)
    optional = [make(target, target, needed=False) for target in options.optional]
    return [first + optional, *others]


def pytest_parts(options: argparse.Namespace) -> list[Part]:
    """Return the parts that run tests."""
    # A process that crashes fails the suite; with one in its place pytest-xdist waits for ever.
    pytest = ["-m", "pytest", "--max-worker-restart", "0", "-n"]
    # The last -m counts.
    chosen = ["-m", "not soak"] if options.all else []
    names = [name for name in PARTS if name in (options.only or PARTS)]
    halved = {name for group in BESIDE if len(set(group) & set(names)) > 1 for name in group}
    environment = {"TESTS_COMPILE_ALL": "1"} if options.all else {}

    def part(name: str, base: str, words: Sequence[str], minor: str = "", **more: Path) -> Part:
        at_once = options.at_once if base == options.venv else options.npu_at_once
        at_once = max(at_once // 2, 1) if name in halved else at_once
        venv = f"{base}-{minor}" if minor else base
        python = str(ROOT / venv / "bin" / "python")
        # By night all of them, on every version.
        core = ["-m", "core and not nightly"] if minor and not chosen else chosen
        command = [python, *pytest, str(at_once), *core, *words]
        return Part(
            name, command, tests=True, base=base, venv=venv, environment=environment, **more
        )

    package = part("package", options.venv, options.tests or ["tests"])
    if options.tests:
        return [package]
    simulator = ["--dist", "loadfile", "tests"]
    upstream = ["tests/upstream"] if options.all else OF_VLLM_ASCEND
    core_of_vllm = ["tests/e2e", "tests/patches"]
    parts = [
        package,
        part("simulator", options.npu_venv, simulator, folder=SIMULATOR),
        part("npu", options.npu_venv, ["tests/ascend", *upstream]),
        *(part(f"vllm-{minor}", options.venv, core_of_vllm, minor) for minor in OTHER_VLLM),
        *(
            part(f"vllm-ascend-{minor}", options.npu_venv, ["tests/ascend"], minor)
            for minor in OTHER_VLLM_ASCEND
        ),
    ]
    return [part for part in parts if part.name in names]


def in_stages(parts: Sequence[Part]) -> list[list[Part]]:
    """Return the stages of some parts, in order."""
    stage_of = {name: group for group in BESIDE for name in group}
    stages: dict[tuple[str, ...], list[Part]] = {}
    for part in parts:
        stages.setdefault(stage_of.get(part.name, (part.name,)), []).append(part)
    return [
        sorted(stage, key=lambda part: group.index(part.name)) for group, stage in stages.items()
    ]


def beside_tests(
    set_ups: Sequence[Sequence[Part]], tests: Sequence[Sequence[Part]]
) -> list[Sequence[Part]]:
    """Return all stages: the package's tests need the first environment alone.

    The others are set up beside these tests, one after the other, in the order that they stand in:
    of the two parts that run at once the tests are one.
    """
    if [part.name for part in tests[0]] != ["package"]:
        return [*set_ups, *tests]
    first, *others = set_ups
    return [first, [*tests[0], *(part for stage in others for part in stage)], *tests[1:]]


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tests", nargs="*", help="some of the package's tests; all parts if none")
    parser.add_argument("--venv", default=".venv")
    parser.add_argument("--npu-venv", default=".venv-npu")
    parser.add_argument("--python", default=sys.executable, help="of the environments")
    parser.add_argument("--make", default="make")
    parser.add_argument("--optional", action="append", default=[], help="a target that may fail")
    parser.add_argument("--at-once", type=int, default=2, help="processes of the package's tests")
    parser.add_argument("--npu-at-once", type=int, default=2, help="and on the simulated NPU")
    parser.add_argument("--all", action="store_true", help="those marked nightly, too")
    parser.add_argument("--only", action="append", choices=PARTS, help="a part; all if none")
    return parser.parse_args(words)


def main(words: Sequence[str]) -> int:
    """Run everything and return the exit status."""
    options = parse(words)
    tests = pytest_parts(options)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as records:
        stages = beside_tests(set_up(options, tests), in_stages(tests))
        results = run_stages([stage for stage in stages if stage], 2, Path(records))
    print("\n".join(report(results, time.monotonic() - started)))
    return int(any(result.has_failed for result in results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
