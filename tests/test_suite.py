"""The runner of the suite, on parts that take no time."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import suite
from tests.order import APART, BY_METHOD, LONG, TOGETHER, shared_by
from tests.suite import ROOT, Part, Result, report, run_stages

RECORD = """<testsuites><testsuite>
<testcase classname="tests.a.test_b" name="test_c[1]" time="2.5"/>
<testcase classname="tests.a.test_b.TestD" name="test_e" time="1.0"/>
<testcase classname="tests.test_f" name="test_g" time="4.0"/>
</testsuite></testsuites>"""
RUN = f"""
import sys
from pathlib import Path
for word in sys.argv[2:]:
    if word.startswith("--junitxml="):
        Path(word.partition("=")[2]).write_text({RECORD!r})
sys.exit(int(sys.argv[1]))
"""


# Of the parts that run beside another one, in no order.
SECOND = {name for _, *others in suite.BESIDE for name in others}


def part(name: str, status: int = 0, **more: bool) -> Part:
    return Part(name, [sys.executable, "-c", RUN, str(status)], **more)


def names(results: list[Result]) -> list[str]:
    return [result.part.name for result in results]


def test_parts_run_stage_by_stage_and_tell_their_times(tmp_path: Path) -> None:
    stages = [[part("one"), part("two")], [part("three", tests=True)]]
    results = run_stages(stages, 2, tmp_path)
    assert names(results) == ["one", "two", "three"]
    assert not any(result.has_failed for result in results)
    assert results[2].times == {
        "tests/a/test_b.py::test_c[1]": 2.5,
        "tests/a/test_b.py::TestD::test_e": 1.0,
        "tests/test_f.py::test_g": 4.0,
    }


def test_nothing_runs_without_its_environment(tmp_path: Path) -> None:
    results = run_stages([[part("one", 3), part("two")], [part("three")]], 2, tmp_path)
    assert names(results) == ["one", "two"]
    assert [result.has_failed for result in results] == [True, False]


def test_what_is_not_needed_may_fail(tmp_path: Path) -> None:
    results = run_stages([[part("one", 3, needed=False)], [part("two")]], 2, tmp_path)
    assert names(results) == ["one", "two"]
    assert not any(result.has_failed for result in results)
    assert "ended with 3, not needed" in "\n".join(report(results, 0.0))


def test_after_a_test_that_failed_the_other_parts_run(tmp_path: Path) -> None:
    results = run_stages([[part("one", 1, tests=True)], [part("two", tests=True)]], 2, tmp_path)
    assert [result.has_failed for result in results] == [True, False]


def test_the_list_has_the_longest_first(tmp_path: Path) -> None:
    results = run_stages([[part("one", tests=True)]], 2, tmp_path)
    results[0].seconds = 61.0
    said = list(report(results, 125.0))
    assert said == [
        "== longest tests, of 3",
        "    4.0s  tests/test_f.py::test_g",
        "    2.5s  tests/a/test_b.py::test_c[1]",
        "    1.0s  tests/a/test_b.py::TestD::test_e",
        "== longest files, of 2, the seconds of all processes together",
        "    4.0s  tests/test_f.py",
        "    3.5s  tests/a/test_b.py",
        "== folders",
        "    4.0s  tests",
        "    3.5s  tests/a",
        "== parts",
        "    1:01  one",
        "    2:05  all",
    ]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            [],
            [
                "set-up of .venv",
                "set-up of .venv-npu",
                "set-up of .venv-0.23",
                "set-up of .venv-0.32",
                "set-up of .venv-npu-0.23",
                "package",
                "vllm-0.32",
                "vllm-0.23",
                "simulator",
                "vllm-ascend-0.23",
                "npu",
            ],
        ),
        (["tests/ops"], ["set-up of .venv", "package"]),
        (
            ["--only", "simulator", "--only", "vllm-ascend-0.23"],
            [
                "set-up of .venv",
                "set-up of .venv-npu",
                "set-up of .venv-npu-0.23",
                "simulator",
                "vllm-ascend-0.23",
            ],
        ),
        (
            ["--only", "vllm-0.32"],
            ["set-up of .venv", "set-up of .venv-0.32", "vllm-0.32"],
        ),
        (
            ["tests/ops", "--optional", "extra"],
            ["set-up of .venv", "set-up of extra", "package"],
        ),
    ],
)
def test_parts(words: list[str], expected: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Part] = []

    def note(part: Part, *_: object, **__: object) -> Result:
        seen.append(part)
        return Result(part, 0, 0.0)

    monkeypatch.setattr(suite, "run", note)
    assert suite.main(words) == 0
    assert all(found.folder in (ROOT, suite.SIMULATOR) for found in seen)
    assert all(found.tests != found.name.startswith("set-up") for found in seen)
    # Those of a stage begin at the same time.
    assert sorted(found.name for found in seen) == sorted(expected)
    first = [found.name for found in seen if found.tests and found.name not in SECOND]
    assert first == [name for name in expected if name in suite.PARTS and name not in SECOND]


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        ([], "1"),
        (["vllm-0.23", "vllm-ascend-0.23"], "1"),
        (["vllm-0.32", "npu"], "2"),
        (["package"], "2"),
    ],
)
def test_parts_beside_each_other_share_the_processes(only: list[str], expected: str) -> None:
    options = suite.parse([word for name in only for word in ("--only", name)])
    found = {part.name: list(part.command) for part in suite.pytest_parts(options)}
    command = found[only[0] if only else "simulator"]
    assert command[command.index("-n") + 1] == expected


def test_parts_beside_each_other_begin_in_the_order_that_is_given() -> None:
    stages = suite.in_stages(suite.pytest_parts(suite.parse([])))
    assert tuple(part.name for part in stages[1]) in suite.BESIDE


@pytest.mark.parametrize("every", [False, True])
def test_all_chooses_the_nightly_ones_too(every: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: dict[str, list[str]] = {}

    def note(part: Part, *_: object, **__: object) -> Result:
        commands[part.name] = list(part.command)
        return Result(part, 0, 0.0)

    monkeypatch.setattr(suite, "run", note)
    assert suite.main(["--all"] if every else []) == 0
    for name in ("package", "npu"):
        # The first is Python's own -m.
        assert commands[name].count("-m") == 1 + every
        # Not the ten minutes of each soak.
        assert ("not soak" in commands[name]) is every


def test_other_environments_are_set_up_beside_the_first_tests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[list[str]] = []

    def note(stages: list[list[Part]], *_: object) -> list[Result]:
        seen.extend([part.name for part in stage] for stage in stages)
        return []

    monkeypatch.setattr(suite, "run_stages", note)
    suite.main([])
    assert seen[0] == ["set-up of .venv"]
    # Each after the one that it stands beside.
    later = [".venv-npu", ".venv-0.23", ".venv-0.32", ".venv-npu-0.23"]
    assert seen[1] == ["package", *(f"set-up of {venv}" for venv in later)]
    seen.clear()
    suite.main(["--only", "vllm-ascend-0.23"])
    assert seen[:2] == [["set-up of .venv"], ["set-up of .venv-npu"]]


def test_by_day_what_knows_vllm_ascend_runs_on_the_npu_too() -> None:
    day, night = (suite.pytest_parts(suite.parse(words))[2] for words in ([], ["--all"]))
    assert tuple(day.command[-len(suite.OF_VLLM_ASCEND) :]) == suite.OF_VLLM_ASCEND
    assert night.command[-1] == "tests/upstream"
    for test in suite.OF_VLLM_ASCEND:
        file, _, name = test.partition("::")
        assert f"def {name}" in (ROOT / file).read_text()
    files = {test.partition("::")[0] for test in suite.OF_VLLM_ASCEND}
    for path in (ROOT / "tests/upstream").glob("test_*.py"):
        knows = re.search(r"\bvllm_ascend\b", path.read_text())
        assert not knows or str(path.relative_to(ROOT)) in files


def test_files_that_come_first_are_there() -> None:
    """They move; what is not there would be put last without a word."""
    named = (*LONG, *APART, *BY_METHOD, *TOGETHER, *TOGETHER.values())
    assert [file for file in named if not (ROOT / file).is_file()] == []


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("tests/e2e/test_seeds.py::test_it[eagle-1]", "tests/e2e/test_seeds.py"),
        ("tests/e2e/test_greedy_equality.py::test_it[eagle-1]", "::eagle"),
        ("tests/e2e/test_greedy_equality.py::test_it[draft_model]", "::draft_model"),
        ("tests/e2e/test_greedy_equality.py::test_it", "::"),
        ("tests/ascend/test_matrix.py::test_it[eagle-eager]", "::test_it[eagle-eager]"),
    ],
)
def test_what_shares_engines_stays_together(test: str, expected: str) -> None:
    whole = expected if expected.startswith("tests") else test.partition("::")[0] + expected
    assert shared_by(test) == whole


CONFTEST = """
import os
from tests import order
from tests.conftest import pytest_collection_modifyitems, pytest_xdist_make_scheduler
order.LONG["test_z.py"] = 9
"""
FILE = """
import json, os, pytest
@pytest.mark.parametrize("turn", range({count}))
def test_it(turn, request):
    with open({log!r}, "a") as file:
        worker = os.environ.get("PYTEST_XDIST_WORKER")
        file.write(json.dumps([request.node.nodeid, worker]) + "\\n")
"""


def run_shared_out(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in two processes, with our order."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2"]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [*command, *options],
        cwd=folder,
        env={**plain, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_long_files_come_first_and_stay_together(tmp_path: Path) -> None:
    """In processes of pytest's own; a file with fewer tests would come last by itself."""
    log = tmp_path / "log"
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    for name, count in (("a", 9), ("b", 9), ("z", 1)):
        (tmp_path / f"test_{name}.py").write_text(FILE.format(count=count, log=str(log)))
    done = run_shared_out(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    ran = [json.loads(line) for line in log.read_text().splitlines()]
    workers: dict[str, set[str]] = {}
    for nodeid, worker in ran:
        workers.setdefault(nodeid.partition("::")[0], set()).add(worker)
    assert {len(found) for found in workers.values()} == {1}
    by = {name: next(iter(found)) for name, found in workers.items()}
    first = next(nodeid for nodeid, worker in ran if worker == by["test_z.py"])
    assert first.startswith("test_z.py")
    # That process was given the file beside it; the other one got the rest.
    assert by["test_a.py"] != by["test_z.py"]


def test_a_crash_ends_the_suite(tmp_path: Path) -> None:
    """With the options of the suite; it names the test."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_crash.py").write_text(
        "import os\ndef test_one(): pass\ndef test_two(): os.abort()\ndef test_three(): pass\n"
    )
    for name in "ab":
        (tmp_path / f"test_{name}.py").write_text(FILE.format(count=9, log=str(tmp_path / "log")))
    command = suite.pytest_parts(suite.parse([]))[0].command
    place = command.index("--max-worker-restart")
    done = run_shared_out(tmp_path, *command[place : place + 2])
    assert done.returncode != 0
    assert "test_crash.py::test_two" in done.stdout
