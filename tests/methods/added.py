"""A drafting method of another package, from the text of ``docs/add_method.md``."""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path
from typing import Any

from tests.worked_examples import ROOT, install, run, with_path

NAME = "bigram"
PAGE = ROOT / "docs" / "add_method.md"
SPEC = {"method": NAME, "num_speculative_tokens": 3}


def answers(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return what an engine says without and with the method, and how many drafts it took.

    Args:
        arguments: of ``LLM``.
    """
    from vllm import LLM, SamplingParams

    from tests.zoo import ZOO

    prompts = json.loads((ZOO / "prompts.json").read_text())[:4]
    greedy = SamplingParams(temperature=0, max_tokens=48, ignore_eos=True)
    found: dict[str, Any] = {}
    for name, spec in (("without", None), ("with", SPEC)):
        llm = LLM(**arguments, speculative_config=None if spec is None else dict(spec))
        outputs = llm.generate(prompts, greedy, use_tqdm=False)
        found[name] = [list(output.outputs[0].token_ids) for output in outputs]
        counters = {metric.name: getattr(metric, "value", None) for metric in llm.get_metrics()}
        llm.llm_engine.engine_core.shutdown()
        gc.collect()
    accepted = "vllm:spec_decode_num_accepted_tokens"
    return {**found, "accepted": counters[accepted]}


def answers_elsewhere(
    folder: Path, arguments: dict[str, Any], environment: dict[str, str]
) -> dict[str, Any]:
    """Do the same in a process that has the method installed.

    Args:
        folder: where to install it.
        arguments: of ``LLM``.
        environment: of the process.
    """
    output = folder / "answers.json"
    done = run(
        *("-m", "tests.methods.added", str(output)),
        environment=with_path(install(PAGE, folder), **environment),
        input=json.dumps(arguments),
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(output.read_text())


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(answers(json.loads(sys.stdin.read()))))
