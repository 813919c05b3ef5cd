"""Errors in our code for the NPU are noticed by the checks of this folder.

So the prompts, and what is compared, are strong enough: mutations.py has the errors, and names the
check that has to notice each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.ascend import test_changing_k, test_matrix, test_same_drafts, test_trees
from tests.ascend.environment import CPU, IS_SIMULATED, NPU
from tests.ascend.matrix import BY_NIGHT, Case
from tests.ascend.mutations import MUTATIONS, Mutation
from tests.ascend.processes import Outcome, Run

README = Path(__file__).parents[1] / "README.md"
# By the name of the file that has the check: how it is called with the name of a case, with what
# runs engines, and with what gets a fixture.
CHECKS: dict[str, Callable[[str, Run, Callable[[str], Any]], None]] = {
    "test_matrix.py": lambda name, run, get: test_matrix.test_answers(name, run, get("on_cpu")),
    "test_same_drafts.py": lambda name, run, get: test_same_drafts.test_drafts_are_those_of_a_cpu(
        name, run
    ),
    "test_trees.py": lambda name, run, get: (
        test_trees.check_drafts(name, run)
        if name in test_trees.COMPARED
        else test_trees.check_scripted(name, run, get("on_cpu"))
    ),
    "test_changing_k.py": lambda name, run, get: (
        test_changing_k.test_drafts_are_those_of_an_engine_without_graphs(run)
    ),
}


def compares_drafts(mutation: Mutation) -> bool:
    """Tell whether a mutation's check compares drafts, and no answers."""
    of_trees = mutation.check == "test_trees.py" and mutation.case in test_trees.COMPARED
    return of_trees or mutation.check == "test_same_drafts.py"


@pytest.mark.parametrize("name", MUTATIONS)
def test_each_can_be_put_in_and_its_check_runs_by_day(name: str) -> None:
    mutation = MUTATIONS[name]
    compile(mutation.text(), mutation.file, "exec")
    assert mutation.case not in BY_NIGHT


def test_the_page_lists_them() -> None:
    rows = [f"| {name} | `{m.check}`, {m.case} |" for name, m in MUTATIONS.items()]
    assert "\n".join(rows) in README.read_text()


@pytest.mark.skipif(not IS_SIMULATED, reason="on silicon nobody needs engines with errors")
@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", MUTATIONS)
def test_each_is_noticed(name: str, run_engine: Run, request: pytest.FixtureRequest) -> None:
    mutation = MUTATIONS[name]

    def run(case: Case, environment: dict[str, str] = NPU, **job: Any) -> Outcome:
        # What is right is worked out without the error.
        if environment == CPU:
            return run_engine(case, environment, **job)
        # Of what is asked for, drafts are compared for some kinds of requests alone.
        asked = case.requests
        if compares_drafts(mutation):
            asked = tuple(kind for kind in asked if kind in test_same_drafts.DRAFTS_OF)
        return run_engine(replace(case, requests=asked), environment, mutation=name, **job)

    with pytest.raises((AssertionError, pytest.fail.Exception), match=mutation.said):
        CHECKS[mutation.check](mutation.case, run, request.getfixturevalue)
