"""Run ``vllm-ascend-spec train`` on the zoo's target, and measure the head that it makes."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from examples.zoo import evaluate
from tests.engines import MakeEngine
from tests.zoo import ZOO
from vllm_ascend_spec.training.output import Output


def train(
    folder: Path, texts: Sequence[str], options: str, longest_s: float
) -> tuple[Output, list[str]]:
    """Run the command in a folder, and return what it made and its lines."""
    prompts, output = folder / "prompts.jsonl", Output(folder / "out")
    prompts.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))
    words = f"""train {ZOO / "target"} --prompts {prompts} --output {output.folder}
        --max-model-len 512 --dtype float32 --enforce-eager {options}"""
    done = subprocess.run(
        [sys.executable, "-m", "vllm_ascend_spec.cli.main", *shlex.split(words)],
        capture_output=True,
        text=True,
        timeout=longest_s,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:] + done.stdout[-4000:]
    return output, done.stdout.splitlines()


def worth_in_the_zoo(make_engine: MakeEngine, name: str, head: Path, request: str) -> float:
    """Return tokens per step on the zoo's prompts, measured as its record was.

    Args:
        make_engine: starts engines.
        name: of a draft in that record, whose place the head takes.
        head: its folder.
        request: kind of requests, a key of ``evaluate.REQUESTS``.
    """
    spec = {**evaluate.DRAFTS[name].spec(), "model": str(head)}
    llm = make_engine(spec, model=str(ZOO / "target"), **evaluate.ENGINE)
    found: float = evaluate.measure(llm, evaluate.REQUESTS[request])["tokens_per_step"]
    return found
