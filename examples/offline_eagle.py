"""EAGLE with the offline ``LLM`` class: the same model with and without speculation.

    python examples/offline_eagle.py

Ends with status 1 if a greedy answer differs.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

# One process, one thread: the zoo's models are tiny.
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")

from vllm import LLM, SamplingParams

from vllm_ascend_spec.metrics.acceptance import from_engine
from vllm_ascend_spec.metrics.rule import note_on_rule, rule_from_engine

ZOO = Path(__file__).parent / "zoo"
PROMPTS: list[str] = json.loads((ZOO / "prompts.json").read_text())[:8]


def generate(speculative_config: dict[str, object] | None) -> list[list[int]]:
    """Load the model, answer all prompts one at a time and print the speed."""
    llm = LLM(
        model=str(ZOO / "target"),
        dtype="float32",
        max_model_len=512,
        max_num_seqs=8,
        enforce_eager=True,
        disable_log_stats=False,
        speculative_config=speculative_config,
    )
    sampling = SamplingParams(temperature=0, max_tokens=64, ignore_eos=True)
    llm.generate(PROMPTS[0], sampling, use_tqdm=False)
    before = from_engine(llm.get_metrics())  # counters of the process: the newest engine's
    started = time.perf_counter()
    outputs = [llm.generate(prompt, sampling, use_tqdm=False)[0] for prompt in PROMPTS]
    seconds = time.perf_counter() - started
    tokens = [list(output.outputs[0].token_ids) for output in outputs]
    accepted = from_engine(llm.get_metrics()) - before
    per_step = accepted.tokens_per_step or 1.0
    note = note_on_rule(rule_from_engine(llm.get_metrics()))
    print(f"{sum(map(len, tokens)) / seconds:.1f} tokens/s, {per_step:.2f} tokens per step{note}")
    return tokens


def main() -> int:
    """Compare and return the exit status."""
    print("with EAGLE:", flush=True)
    eagle = generate({"method": "eagle", "model": str(ZOO / "eagle"), "num_speculative_tokens": 3})
    print("without:", flush=True)
    plain = generate(None)
    equal = sum(a == b for a, b in zip(eagle, plain, strict=True))
    print(f"identical: {equal} of {len(plain)}")
    return 0 if equal == len(plain) else 1


if __name__ == "__main__":
    sys.exit(main())
