"""By night: heads of one command that are worth those of the zoo, which its own scripts trained."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import Any

import pytest

from examples.zoo.training import prompts
from tests.e2e import golden
from tests.e2e.train_command import train, worth_in_the_zoo
from tests.marks import requires_hidden_states
from tests.zoo import ZOO
from vllm_ascend_spec.training import requirements

LONGEST_S = 4 * 3600
# An hour on two cores.
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.nightly,
    pytest.mark.timeout(LONGEST_S),
    requires_hidden_states,
    pytest.mark.skipif(requirements.missing() is not None, reason="needs the trainer"),
]
NUM_PROMPTS = 3200
STEPS = {"eagle3": 4500, "peagle": 1500, "dflash": 1500}
# Of the figures in examples/zoo/evaluation.json.
LEAST_SHARE = {
    "eagle3": {"greedy": 0.95, "T=0.8": 0.95},
    "peagle": {"greedy": 1.0},
    "dflash": {"greedy": 1.0},
}


@pytest.mark.parametrize("method", STEPS)
def test_a_head_of_one_command_is_worth_that_of_the_zoo(
    method: str, make_engine: Any, tmp_path: Path
) -> None:
    texts = prompts.for_training(Path(sysconfig.get_paths()["stdlib"]), NUM_PROMPTS)
    options = f"""--method {method} --layers 3,7,12 --draft-vocab-size 3072 --learning-rate 3e-3
        --steps {STEPS[method]} --holdout 64 --max-tokens 160 --temperature 0.6
        --max-num-seqs 64 --kv-cache-memory-bytes {512 << 20}"""
    output, _ = train(tmp_path, texts, options, LONGEST_S)
    for request, share in LEAST_SHARE[method].items():
        before = golden.results(ZOO)[method][request]["tokens_per_step"]
        assert worth_in_the_zoo(make_engine, method, output.head, request) >= share * before
