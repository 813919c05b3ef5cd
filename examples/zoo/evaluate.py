"""Measure how many tokens per step the zoo's drafts yield on held-out prompts.

    python examples/zoo/evaluate.py

Writes ``evaluation.json`` beside the checkpoints; README.md quotes it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

from vllm import LLM, SamplingParams

from vllm_ascend_spec.bench.provenance import collect
from vllm_ascend_spec.bench.serve import acceptance_record
from vllm_ascend_spec.metrics.acceptance import from_engine

ZOO = Path(__file__).parent
PROMPTS: list[str] = json.loads((ZOO / "prompts.json").read_text())
DRAFTS = {"eagle": ("eagle", "greedy"), "draft_model": ("draft", "greedy")}
DRAFTS_SAMPLED = {"eagle, sampled drafts": ("eagle", "probabilistic")}
REQUESTS = {
    "greedy": {"temperature": 0.0},
    "T=0.8": {"temperature": 0.8},
    "greedy, repetition penalty 1.15": {"temperature": 0.0, "repetition_penalty": 1.15},
}
NUM_DRAFTS = 3
MAX_TOKENS = 64


def repeated_share(tokens: list[int], width: int = 4) -> float:
    """Return the share of ``width``-grams that stood in the same text before: how much it loops."""
    grams = [tuple(tokens[i : i + width]) for i in range(len(tokens) - width + 1)]
    return 1 - len(set(grams)) / len(grams)


def evaluate(folder: str, drafts: str) -> dict[str, object]:
    """Evaluate one draft with every kind of request."""
    llm = LLM(
        model=str(ZOO / "target"),
        dtype="float32",
        max_model_len=512,
        max_num_seqs=8,
        enforce_eager=True,
        disable_log_stats=False,
        seed=0,
        speculative_config={
            "method": "eagle" if folder == "eagle" else "draft_model",
            "model": str(ZOO / folder),
            "num_speculative_tokens": NUM_DRAFTS,
            "draft_sample_method": drafts,
        },
    )
    results: dict[str, object] = {}
    for name, options in REQUESTS.items():
        parameters = [
            SamplingParams(max_tokens=MAX_TOKENS, ignore_eos=True, seed=index, **options)
            for index in range(len(PROMPTS))
        ]
        before = from_engine(llm.get_metrics())
        outputs = llm.generate(PROMPTS, parameters, use_tqdm=False)
        accepted = from_engine(llm.get_metrics()) - before
        loops = [repeated_share(list(output.outputs[0].token_ids)) for output in outputs]
        results[name] = {
            **acceptance_record(accepted),
            "repeated_4grams": round(sum(loops) / len(loops), 3),
        }
        print(f"{folder} ({drafts} drafts), {name}: {results[name]}", flush=True)
    return results


def main() -> None:
    """Evaluate all drafts and write the record."""
    record = {
        "provenance": collect(),
        "prompts": len(PROMPTS),
        "max_tokens": MAX_TOKENS,
        "num_speculative_tokens": NUM_DRAFTS,
        "results": {
            name: evaluate(*draft) for name, draft in {**DRAFTS, **DRAFTS_SAMPLED}.items()
        },
    }
    (ZOO / "evaluation.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
