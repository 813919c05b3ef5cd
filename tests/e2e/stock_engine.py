"""Answers of plain vLLM with a draft head, from another environment.

The Python of that environment runs this file, which imports nothing of ours.
``stock_engine.py MODEL HEAD TOKENS``: TOKENS is a file with prompts, a list of lists of token ids.
The last line that it prints is an object in JSON: ``version`` of vLLM, ``answers`` (token ids),
``num_drafts`` and ``num_accepted``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(model: str, head: str, tokens: str) -> None:
    """Answer the prompts greedily."""
    import vllm

    llm = vllm.LLM(
        model,
        dtype="float32",
        max_model_len=512,
        max_num_seqs=8,
        enforce_eager=True,
        disable_log_stats=False,
        kv_cache_memory_bytes=128 << 20,
        speculative_config={"method": "eagle3", "model": head, "num_speculative_tokens": 3},
    )
    prompts = [{"prompt_token_ids": each} for each in json.loads(Path(tokens).read_text())]
    sampling = vllm.SamplingParams(temperature=0, max_tokens=64)
    outputs = llm.generate(prompts, sampling, use_tqdm=False)
    counted = {each.name: each for each in llm.get_metrics()}
    result = {
        "version": vllm.__version__,
        "answers": [list(output.outputs[0].token_ids) for output in outputs],
        "num_drafts": counted["vllm:spec_decode_num_drafts"].value,
        "num_accepted": counted["vllm:spec_decode_num_accepted_tokens"].value,
    }
    print("\n" + json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
