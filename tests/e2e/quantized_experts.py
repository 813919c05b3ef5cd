"""Print what a random DeepSeek with quantized experts answers, with MTP and without, as JSON.

A process of its own: vLLM makes the groups that experts need with a process's first engine only.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from examples.zoo.training import modelslim
from tests.engines import ENGINE, token_ids
from tests.replicas.models import write_mtp
from vllm_ascend_spec.metrics.acceptance import from_engine

PROMPTS = [{"prompt_token_ids": [1 + n % 7, n % 5, 3, n % 4]} for n in range(16)]
SPEC = {"method": "mtp", "num_speculative_tokens": 3}


def answers(model: str, spec: dict[str, Any] | None) -> dict[str, Any]:
    """Return the answers of one engine, and how many drafts it accepted."""
    from vllm import LLM, SamplingParams

    options = {**ENGINE, "model": model, "quantization": "ascend", "skip_tokenizer_init": True}
    llm = LLM(**options, speculative_config=spec)
    sampling = SamplingParams(temperature=0, max_tokens=32, ignore_eos=True, detokenize=False)
    outputs = llm.generate(PROMPTS, sampling, use_tqdm=False)
    accepted = from_engine(llm.get_metrics()).num_accepted_tokens if spec else 0
    llm.llm_engine.engine_core.shutdown()
    return {"tokens": token_ids([output.outputs[0] for output in outputs]), "accepted": accepted}


def main(folder: Path) -> None:
    """Quantize a new model in ``folder``, and ask it."""
    source, _ = write_mtp(folder / "float")
    modelslim.quantize_dynamic(Path(source), folder / "quantized")
    found = [answers(str(folder / "quantized"), spec) for spec in (None, SPEC)]
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
