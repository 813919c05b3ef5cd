"""Copies of a mixture of experts run in step, whether they have work or not.

Each of their layers exchanges tokens with the other copies, so a copy without work makes the same
passes, the drafter's too. Were it one more or fewer, all would wait for ever.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.ascend.environment import CPU
from tests.marks import unless
from tests.replicas.cases import DRAFTS, SCHEDULE, assert_in_step, run_case, wrong_answers
from tests.replicas.lockstep import beside_idle
from vllm_ascend_spec.upstream import limits

pytestmark = unless(limits.NO_EXPERT_REPLICAS_ON_CPU)

# By method, the passes of a step through a layer of experts: the target's, and those of a draft
# that has experts, too. EAGLE-3's target is the zoo's, of three layers.
PASSES = {"eagle": 1, "eagle3": 3, "mtp": 1 + DRAFTS}
# The target's batch is compared with the other copy's, then the draft's first and its later ones.
BATCHES_COMPARED = 3


@pytest.mark.parametrize(
    ("method", "options"),
    [
        pytest.param("eagle", {}, marks=pytest.mark.nightly),
        pytest.param("eagle3", {}, marks=pytest.mark.nightly),
        pytest.param("mtp", {}, marks=pytest.mark.nightly),
        # By day tests/ascend/test_lockstep.py has it, and tests/replicas the counts of its steps.
        pytest.param("mtp", SCHEDULE, id="mtp-schedule", marks=pytest.mark.nightly),
    ],
)
def test_a_copy_without_work_keeps_in_step(
    method: str, options: dict[str, Any], tmp_path: Path
) -> None:
    """The answers are those of the target alone, and each step exchanges as much on both sides.

    With a schedule, too: as many drafts are made as ever, and fewer of them verified.
    """
    # Each copy has half of the experts, or half of each.
    how = {"enforce_eager": True, "enable_expert_parallel": method == "eagle3"}
    target, ran = run_case(method, tmp_path, CPU, options, **how)
    assert_in_step(ran)
    assert (ran.length < DRAFTS - 0.5) == bool(options)
    passes = PASSES[method]
    # Tokens, weights and experts are gathered and the results added up.
    exchanged = {"all_gather_into_tensor": 3 * passes, "all_reduce": passes + BATCHES_COMPARED}
    assert all(counts == exchanged for counts in beside_idle(*ran.steps))
    assert not wrong_answers(target, ran)
