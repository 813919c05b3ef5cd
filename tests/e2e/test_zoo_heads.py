"""By night: heads of one command that are worth those of the zoo.

The zoo's P-EAGLE and DFlash heads come from it too, its EAGLE-3 head from scripts of its own.
"""

from __future__ import annotations

import shlex
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from examples.zoo.training import prompts
from examples.zoo.training.command import Recipe
from examples.zoo.training.stages import dflash, peagle
from tests.e2e import golden
from tests.e2e.train_command import train, worth_in_the_zoo
from tests.marks import requires_hidden_states
from tests.zoo import ZOO
from vllm_ascend_spec.training import requirements

LONGEST_S = 4 * 3600
# Two hours on two cores, beside other work.
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.nightly,
    pytest.mark.timeout(LONGEST_S),
    requires_hidden_states,
    pytest.mark.skipif(requirements.missing() is not None, reason="needs the trainer"),
]
RECIPES = {
    "eagle3": Recipe("eagle3", 4500, peagle.RECIPE.options),
    "peagle": peagle.RECIPE,
    "dflash": dflash.RECIPE,
}
# Of the figures in examples/zoo/evaluation.json.
LEAST_SHARE = {
    "eagle3": {"greedy": 0.95, "T=0.8": 0.95},
    "peagle": {"greedy": 1.0, "T=0.8": 0.95},
    "dflash": {"greedy": 0.95, "T=0.8": 0.95},
}


@pytest.mark.parametrize("method", RECIPES)
def test_a_head_of_one_command_is_worth_that_of_the_zoo(
    method: str, make_engine: Any, tmp_path: Path
) -> None:
    texts = prompts.for_training(Path(sysconfig.get_paths()["stdlib"]))
    options = shlex.join(RECIPES[method].words())
    output, _ = train(tmp_path, texts, options, LONGEST_S)
    for request, share in LEAST_SHARE[method].items():
        before = golden.results(ZOO)[method][request]["tokens_per_step"]
        assert worth_in_the_zoo(make_engine, method, output.head, request) >= share * before
