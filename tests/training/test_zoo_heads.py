"""By night: heads of one command that are worth those of the zoo, which its own scripts trained."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from examples.zoo import evaluate
from tests.e2e import golden
from tests.zoo import ZOO
from vllm_ascend_spec.training import requirements

# An hour on two cores.
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.nightly,
    pytest.mark.timeout(4 * 3600),
    pytest.mark.skipif(requirements.missing() is not None, reason="needs the trainer"),
]
NUM_PROMPTS = 3200
STEPS = {"eagle3": 4500, "peagle": 1500, "dflash": 1500}
# Of the figures in examples/zoo/evaluation.json, what each head has at least.
LEAST_SHARE = {
    ("eagle3", "greedy"): 0.95,
    ("eagle3", "T=0.8"): 0.95,
    ("peagle", "greedy"): 1.0,
    ("dflash", "greedy"): 1.0,
}

# Prints what the head in a folder is worth, by kind of request.
MEASURE = """
import json, sys
from vllm import LLM
from examples.zoo import evaluate

name, head = sys.argv[1:]
spec = {**evaluate.DRAFTS[name].spec(), "model": head}
llm = LLM(str(evaluate.ZOO / "target"), speculative_config=spec, **evaluate.ENGINE)
found = {kind: evaluate.measure(llm, evaluate.REQUESTS[kind]) for kind in ("greedy", "T=0.8")}
print("\\n" + json.dumps({kind: each["tokens_per_step"] for kind, each in found.items()}))
"""


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file of prompts from what the zoo was trained on."""
    program = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from training import prompts

for text in prompts.for_training(Path(sys.argv[2]), int(sys.argv[3])):
    print(json.dumps({"prompt": text}))
"""
    stdlib = sysconfig.get_paths()["stdlib"]
    words = [sys.executable, "-c", program, ZOO, stdlib, str(NUM_PROMPTS)]
    path = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
    path.write_text(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    return path


def run(*words: Any) -> list[str]:
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:] + done.stdout[-4000:]
    return done.stdout.splitlines()


@pytest.mark.parametrize("method", STEPS)
def test_a_head_of_one_command_is_worth_that_of_the_zoo(
    method: str, prompts: Path, tmp_path: Path
) -> None:
    options = f"""--method {method} --layers 3,7,12 --draft-vocab-size 3072 --learning-rate 3e-3
        --steps {STEPS[method]} --holdout 64 --max-tokens 160 --temperature 0.6
        --max-model-len 512 --max-num-seqs 64 --dtype float32 --enforce-eager
        --kv-cache-memory-bytes {512 << 20}"""
    output = tmp_path / "out"
    command = ["-m", "vllm_ascend_spec.cli.main", "train", ZOO / "target"]
    run(*command, "--prompts", prompts, "--output", output, *shlex.split(options))
    found = json.loads(run("-c", MEASURE, method, output / "head")[-1])
    assert found.keys() <= evaluate.REQUESTS.keys()
    for kind, worth in found.items():
        before = golden.results(ZOO)[method][kind]["tokens_per_step"]
        share = LEAST_SHARE.get((method, kind), 0)
        assert worth >= share * before, (kind, worth, before)
