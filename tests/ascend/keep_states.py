"""Keep hidden states in an engine on the NPU and compare them with transformers'.

``python -m tests.ascend.keep_states FOLDER ARGUMENTS``; the arguments of the engine are JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.ascend.prompts import prompts
from tests.e2e.states import SPEC, WITH_ANSWER, check_states, keep_in


def main(folder: str, arguments: str) -> None:
    from vllm import LLM, SamplingParams
    from vllm.platforms import current_platform

    llm = LLM(**json.loads(arguments), speculative_config=SPEC, kv_transfer_config=keep_in(folder))
    parameters = SamplingParams(
        temperature=0, max_tokens=12, ignore_eos=True, extra_args=WITH_ANSWER
    )
    outputs = llm.generate(prompts(4), parameters, use_tqdm=False)
    for output in outputs:
        tokens = [*output.prompt_token_ids, *output.outputs[0].token_ids][:-1]
        check_states(output.kv_transfer_params["hidden_states_path"], tokens)
    Path(folder, "done").write_text(type(current_platform).__name__)


if __name__ == "__main__":
    main(*sys.argv[1:])
