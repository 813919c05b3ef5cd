"""Run saved cases on the C++ backend, in an interpreter of its own: ``run_cases.py IN OUT``.

Imports nothing but torch and the ops, so that the interpreter may be one with another torch.
"""

from __future__ import annotations

import sys

import torch

from vllm_ascend_spec.ops import cpu_library, grammar_mask, verify_greedy, verify_sample

GREEDY_ARGUMENTS = ("logits", "draft_token_ids", "cu_num_draft_tokens", "max_draft_len")


def main(source: str, destination: str) -> None:
    if reason := cpu_library.library_problem():
        sys.exit(reason)
    cases = torch.load(source, weights_only=True)
    logits = torch.arange(80.0).reshape(2, 40)
    bitmask, rows = torch.tensor([[5, 1]], dtype=torch.int32), torch.tensor([1]).int()
    grammar_mask(logits, bitmask, rows, backend="cpu")
    results = {
        "torch": str(torch.__version__),
        "instruction_set": cpu_library.instruction_set(),
        "sampled": [verify_sample(**case, backend="cpu") for case in cases],
        "greedy": [
            verify_greedy(**{name: case[name] for name in GREEDY_ARGUMENTS}, backend="cpu")
            for case in cases
        ],
        "masked": logits,
    }
    torch.save(results, destination)


if __name__ == "__main__":
    main(*sys.argv[1:])
