"""Measure how many tokens per step the zoo's drafts yield on held-out prompts.

    python examples/zoo/evaluate.py            # all drafts
    python examples/zoo/evaluate.py eagle      # some; the figures of the others stay

Writes ``evaluation.json`` beside the checkpoints; README.md quotes it. What a CPU cannot run is
evaluated by name, on the simulated NPU (``tests/npu_sim``).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ZOO = Path(__file__).parent
PROMPTS: list[str] = json.loads((ZOO / "prompts.json").read_text())


@dataclass(frozen=True)
class Draft:
    """One way to draft.

    Attributes:
        method: of ``speculative_config``.
        folder: of the draft; None for a method without one.
        options: further ones of ``speculative_config``.
        target: folder of the model that it drafts for.
        device: where the model runs.
        engine: further arguments of ``LLM``.
    """

    method: str
    folder: str | None
    options: dict[str, Any] = field(default_factory=dict)
    target: str = "target"
    device: str = "cpu"
    engine: dict[str, Any] = field(default_factory=dict)

    def spec(self, models: Path = ZOO) -> dict[str, Any]:
        """Return the ``speculative_config``, of the drafts in a folder."""
        model = {"model": str(models / self.folder)} if self.folder else {}
        common = {"method": self.method, "num_speculative_tokens": NUM_DRAFTS}
        # By default drafts are sampled where requests are.
        how = {"draft_sample_method": "greedy"} if model or self.method == "mtp" else {}
        return {**common, **model, **how, **self.options}


# What a record calls the circumstances of figures, by device.
PROVENANCE = {"cpu": "provenance", "npu": "provenance_simulated_npu"}
NUM_DRAFTS = 3
MAX_TOKENS = 64
DRAFTS = {
    "eagle": Draft("eagle", "eagle"),
    "eagle3": Draft("eagle3", "eagle3"),
    # Their layers are in the folder of the model that they draft for.
    "mtp, MiMo": Draft("mtp", None, target="target-mimo"),
    "mtp, DeepSeek": Draft("mtp", None, target="target-deepseek"),
    "eagle3, Qwen3-MoE": Draft("eagle3", "eagle3-qwen3-moe", target="target-qwen3-moe"),
    "eagle3, gpt-oss": Draft("eagle3", "eagle3-gpt-oss", target="target-gpt-oss"),
    "mtp, Gemma 4": Draft("mtp", "mtp-gemma4", target="target-gemma4"),
    "mtp, Qwen3.5": Draft("mtp", None, target="target-qwen35"),
    # vLLM has no sparse attention on a CPU; this one is evaluated on the simulated NPU, which is
    # slow with vLLM's 8192 tokens.
    "mtp, DeepSeek V3.2": Draft(
        "mtp",
        None,
        target="target-deepseek-v32",
        device="npu",
        engine={"max_num_batched_tokens": 512},
    ),
    "eagle3, Qwen2.5-VL": Draft("eagle3", "eagle3-qwen25-vl", target="target-qwen25-vl"),
    "draft_model": Draft("draft_model", "draft"),
    "pard": Draft("draft_model", "pard", {"parallel_drafting": True}),
    "peagle": Draft("eagle3", "peagle", {"parallel_drafting": True}),
    "dflash": Draft("dflash", "dflash"),
    "dspark": Draft("dspark", "dspark"),
    "eagle, sampled drafts": Draft("eagle", "eagle", {"draft_sample_method": "probabilistic"}),
    "eagle3, sampled drafts": Draft("eagle3", "eagle3", {"draft_sample_method": "probabilistic"}),
    # No answer is kept for the next request: the figures are of a request's own text.
    "hybrid": Draft("hybrid", "eagle", {"suffix_decoding_max_cached_requests": 0}),
    "medusa": Draft("medusa", "medusa"),
    "mlp_speculator": Draft("mlp_speculator", "mlp_speculator"),
    "ngram": Draft("ngram", None, {"prompt_lookup_min": 2, "prompt_lookup_max": 4}),
    "suffix": Draft("suffix", None, {"suffix_decoding_max_cached_requests": 0}),
}
# Targets whose code in vLLM imports torchvision: where that is missing, they cannot be evaluated.
NEED_TORCHVISION = ("target-qwen25-vl", "target-qwen35")
# Before vLLM is imported, which reads them once.
ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "OMP_NUM_THREADS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
}
ENGINE: dict[str, Any] = {
    "dtype": "float32",
    "max_model_len": 512,
    "max_num_seqs": 8,
    "enforce_eager": True,
    "disable_log_stats": False,
    "seed": 0,
    "kv_cache_memory_bytes": 128 << 20,
    # Every step is to draft, whether it pays here or not.
    "additional_config": {"ascend_spec": {"draft_length": "fixed"}},
}
REQUESTS = {
    "greedy": {"temperature": 0.0},
    "T=0.8": {"temperature": 0.8},
    "greedy, repetition penalty 1.15": {"temperature": 0.0, "repetition_penalty": 1.15},
}


def repeated_share(tokens: list[int], width: int = 4) -> float:
    """Return the share of ``width``-grams that stood in the same text before: how much it loops."""
    grams = [tuple(tokens[i : i + width]) for i in range(len(tokens) - width + 1)]
    return 1 - len(set(grams)) / len(grams)


def measure(llm: Any, options: dict[str, float], *, seeded: bool = True) -> dict[str, Any]:
    """Let an engine answer all prompts and return what its drafts were worth.

    Args:
        llm: the engine.
        options: sampling parameters.
        seeded: whether requests have seeds. Those that sample without one are verified by the token
            rule, unless the engine was asked for another.

    Returns:
        ``tokens_per_step``: tokens of a request for each of its steps after the first one, steps
        without drafts included; ``per_position``: share of the drafted steps that accepted the
        draft at each position; ``drafted_steps``; ``repeated_4grams``.
    """
    from vllm import SamplingParams

    from vllm_ascend_spec.metrics.acceptance import from_engine

    parameters = [
        SamplingParams(max_tokens=MAX_TOKENS, ignore_eos=True, seed=seed, **options)
        for seed in (range(len(PROMPTS)) if seeded else [None] * len(PROMPTS))
    ]
    before = from_engine(llm.get_metrics())
    outputs = llm.generate(PROMPTS, parameters, use_tqdm=False)
    accepted = from_engine(llm.get_metrics()) - before
    answers = [list(output.outputs[0].token_ids) for output in outputs]
    later = sum(map(len, answers)) - len(answers)
    gained = accepted.num_accepted_tokens
    # Drafts that are accepted may pass the end of an answer.
    undrafted = max(later - accepted.num_drafts - gained, 0)
    loops = sum(map(repeated_share, answers)) / len(answers)
    return {
        "tokens_per_step": round(1 + gained / (accepted.num_drafts + undrafted), 3),
        "per_position": [round(share, 3) for share in accepted.per_position],
        "drafted_steps": accepted.num_drafts,
        "repeated_4grams": round(loops, 3),
    }


def evaluate(name: str, models: Path, requests: Iterable[str]) -> dict[str, object]:
    """Evaluate one way to draft with some kinds of request."""
    from vllm import LLM

    draft = DRAFTS[name]
    engine = {**ENGINE, **draft.engine}
    llm = LLM(model=str(models / draft.target), speculative_config=draft.spec(models), **engine)
    results = {request: measure(llm, REQUESTS[request]) for request in requests}
    for request, result in results.items():
        print(f"{name}, {request}: {result}", flush=True)
    return results


def those_that_can_run() -> list[str]:
    """Return the names of all drafts but those that this environment cannot run; say which."""
    on_cpu = [name for name, draft in DRAFTS.items() if draft.device == "cpu"]
    if importlib.util.find_spec("torchvision"):
        return on_cpu
    lacking = [name for name in on_cpu if DRAFTS[name].target in NEED_TORCHVISION]
    for name in lacking:
        print(f"{name} is left out: it needs torchvision", flush=True)
    return [name for name in on_cpu if name not in lacking]


def main() -> None:
    """Evaluate the drafts that were asked for and write the record."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from vllm_ascend_spec.bench.provenance import collect

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("drafts", nargs="*", help=f"all if none of {', '.join(DRAFTS)}")
    parser.add_argument("--models", type=Path, default=ZOO, help="folder of the checkpoints")
    parser.add_argument("--record", type=Path, help="file to write instead")
    parser.add_argument("--requests", nargs="+", default=list(REQUESTS), choices=list(REQUESTS))
    args = parser.parse_args()
    asked = args.drafts or those_that_can_run()
    if unknown := set(asked) - set(DRAFTS):
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(DRAFTS)}")
    path = args.record or args.models / "evaluation.json"
    earlier = json.loads(path.read_text()) if path.exists() else {"results": {}}
    results = earlier["results"] | {
        name: evaluate(name, args.models, args.requests) for name in asked
    }
    about = {key: earlier[key] for key in PROVENANCE.values() if key in earlier}
    about |= {PROVENANCE[DRAFTS[name].device]: collect() for name in asked}
    record = {
        **about,
        "prompts": len(PROMPTS),
        "max_tokens": MAX_TOKENS,
        "num_speculative_tokens": NUM_DRAFTS,
        "results": {name: results[name] for name in DRAFTS if name in results},
    }
    path.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
