"""``vllm-ascend-spec train`` from 64 prompts to a head that is worth its drafts."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.marks import requires_hidden_states
from tests.zoo import ZOO
from vllm_ascend_spec.training import requirements
from vllm_ascend_spec.training.measure import GREEDY
from vllm_ascend_spec.training.output import Output
from vllm_ascend_spec.training.phases.run import PHASES

pytestmark = [
    pytest.mark.e2e,
    requires_hidden_states,
    pytest.mark.skipif(requirements.missing() is not None, reason="needs the trainer"),
]
LONGEST_S = 360.0


def train(folder: Path) -> list[str]:
    """Run the command and return its lines."""
    texts = json.loads((ZOO / "prompts.json").read_text())
    assert len(texts) == 64
    prompts = folder / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))
    words = f"""train {ZOO / "target"} --prompts {prompts} --output {folder / "out"} --holdout 8
        --layers 3,7,12 --draft-vocab-size 1536 --steps 440 --learning-rate 3e-3
        --max-tokens 400 --temperature 0.8 --max-model-len 512 --dtype float32 --enforce-eager
        --kv-cache-memory-bytes {128 << 20}"""
    done = subprocess.run(
        [sys.executable, "-m", "vllm_ascend_spec.cli.main", *shlex.split(words)],
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
        env=os.environ,
    )
    assert done.returncode == 0, done.stderr[-4000:] + done.stdout[-4000:]
    return done.stdout.splitlines()


def test_from_prompts_to_a_head(tmp_path: Path) -> None:
    lines = train(tmp_path)
    begun = [line for line in lines if line.endswith(" …")]
    assert [line[:5] for line in begun] == [f"[{n}/{len(PHASES)}]" for n in range(1, 6)]
    output = Output(tmp_path / "out")
    report = json.loads(output.report.read_text())
    assert report["results"]["head"][GREEDY]["tokens_per_step"] >= 1.5
    assert report["same_texts"]["head"][GREEDY] == report["prompts"] == 8
    assert lines[-2] == "serve it with this command; `check` passes it:"
    words = shlex.split(lines[-1])
    assert words[:3] == ["vllm", "serve", str(ZOO / "target")]
    assert json.loads(words[-1])["model"] == str(output.head)
