"""Compare greedy and sampled drafts of every method by tokens per step, for requests that sample.

Requests without a seed are verified by the token rule, those with one by samples of the target.

    python examples/zoo/picking.py

Writes ``picking.json`` beside the checkpoints; docs/choosing.md quotes it.
"""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import replace

import evaluate

REQUESTS = {
    "T=0.2": {"temperature": 0.2},
    "T=0.6, top-p 0.95": {"temperature": 0.6, "top_p": 0.95},
    "T=0.7, top-k 20, top-p 0.8": {"temperature": 0.7, "top_k": 20, "top_p": 0.8},
    "T=0.8": {"temperature": 0.8},
    "T=1": {"temperature": 1.0},
}
METHODS = [
    *("eagle", "eagle3", "mtp, MiMo", "mtp, DeepSeek", "draft_model", "pard", "peagle"),
    *("dflash", "dspark", "hybrid", "medusa", "mlp_speculator"),
]


RULES = {"token": False, "seeded": True}
# By default a request with a top-k would be given a seed.
OURS = {"draft_length": "fixed", "verify_rule": "token"}


def tokens_per_step(name: str, how: str) -> dict[str, dict[str, float]]:
    """Return tokens per step of a way to draft, by rule and request.

    Args:
        name: a key of ``evaluate.DRAFTS``.
        how: ``greedy`` or ``probabilistic``.
    """
    from vllm import LLM

    draft = evaluate.DRAFTS[name]
    draft = replace(draft, options={**draft.options, "draft_sample_method": how})
    engine = {**evaluate.ENGINE, "additional_config": {"ascend_spec": OURS}}
    llm = LLM(model=str(evaluate.ZOO / draft.target), speculative_config=draft.spec(), **engine)
    found: dict[str, dict[str, float]] = {rule: {} for rule in RULES}
    for request, options in REQUESTS.items():
        for rule, seeded in RULES.items():
            result = evaluate.measure(llm, options, seeded=seeded)
            found[rule][request] = result["tokens_per_step"]
    llm.llm_engine.engine_core.shutdown()
    print(name, how, found, flush=True)
    return found


def main() -> None:
    """Measure every method and write the record."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    for variable, value in evaluate.ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
    from vllm_ascend_spec.bench.provenance import collect

    results = {
        name: {how: tokens_per_step(name, how) for how in ("greedy", "probabilistic")}
        for name in METHODS
    }
    record = {"provenance": collect(), "results": results}
    (evaluate.ZOO / "picking.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
