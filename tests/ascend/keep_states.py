"""Keep hidden states in an engine on the NPU and compare them with transformers'.

``python -m tests.ascend.keep_states`` reads a job from stdin, as ``tests.ascend.engine`` does, with
``folder`` and the ``arguments`` of the engine.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.ascend.prompts import prompts
from tests.e2e.states import SPEC, WITH_ANSWER, check_states, keep_in


def main(job: dict[str, Any]) -> None:
    from vllm import LLM, SamplingParams
    from vllm.platforms import current_platform

    kept = keep_in(job["folder"])
    llm = LLM(**job["arguments"], speculative_config=SPEC, kv_transfer_config=kept)
    parameters = SamplingParams(
        temperature=0, max_tokens=12, ignore_eos=True, extra_args=WITH_ANSWER
    )
    outputs = llm.generate(prompts(4), parameters, use_tqdm=False)
    for output in outputs:
        tokens = [*output.prompt_token_ids, *output.outputs[0].token_ids][:-1]
        check_states(output.kv_transfer_params["hidden_states_path"], tokens)
    Path(job["output"]).write_text(type(current_platform).__name__)


if __name__ == "__main__":
    main(json.loads(sys.stdin.read()))
