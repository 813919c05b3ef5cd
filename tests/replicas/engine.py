"""Copies of a target in processes of their own, behind one front end.

``python -m tests.replicas.engine`` reads a job from stdin and writes what came of it to the folder
that it names, as JSON: ``answers.json``, and for each copy the collectives of its steps.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

COUNTERS = (
    "vllm:spec_decode_num_drafts",
    "vllm:spec_decode_num_draft_tokens",
    "vllm:spec_decode_num_accepted_tokens",
)


async def answer(engine: Any, number: int, request: dict[str, Any]) -> list[int]:
    """Return the tokens that one copy answers to a prompt."""
    from vllm import SamplingParams, TokensPrompt
    from vllm.sampling_params import RequestOutputKind

    wanted = SamplingParams(
        temperature=0,
        max_tokens=request["max_tokens"],
        ignore_eos=True,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )
    prompt = TokensPrompt(prompt_token_ids=request["prompt"])
    answers = engine.generate(prompt, wanted, str(number), data_parallel_rank=request["rank"])
    return [output async for output in answers][-1].outputs[0].token_ids


async def run(job: dict[str, Any]) -> None:
    """Start the copies and ask them everything, one batch of requests after the other."""
    from vllm import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM
    from vllm.v1.metrics.reader import get_metrics_snapshot

    arguments = job["arguments"] | {
        "worker_extension_cls": "tests.replicas.collectives.Collectives"
    }
    engine = AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments, speculative_config=job["spec"]))
    try:
        await engine.collective_rpc("start_noting")
        answers, number = [], 0
        for batch in job["batches"]:
            asked = [answer(engine, number + i, request) for i, request in enumerate(batch)]
            number += len(batch)
            answers.append(await asyncio.gather(*asked))
        await engine.collective_rpc("write_notes", args=(job["folder"],))
        counters = Counter[str]()
        for metric in get_metrics_snapshot():
            if metric.name in COUNTERS:  # one for each copy
                counters[metric.name] += metric.value
    finally:
        engine.shutdown()
    found = {"answers": answers, "counters": counters}
    (Path(job["folder"]) / "answers.json").write_text(json.dumps(found))


def main(job: dict[str, Any]) -> None:
    """Run a job."""
    asyncio.run(run(job))


if __name__ == "__main__":
    main(json.loads(sys.stdin.read()))
