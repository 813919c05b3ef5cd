"""Requests that arrive while others are under way."""

from __future__ import annotations

from typing import Any

from vllm import SamplingParams


def run_staggered(llm: Any, requests: list[tuple[int, Any, SamplingParams]]) -> list[list[int]]:
    """Add each request after the given number of engine steps and return all answers."""
    engine, answers, step = llm.llm_engine, {}, 0
    waiting = list(enumerate(requests))
    while waiting or engine.has_unfinished_requests():
        for index, (start, prompt, parameters) in [w for w in waiting if w[1][0] <= step]:
            engine.add_request(f"staggered-{index}", prompt, parameters)
            waiting.remove((index, (start, prompt, parameters)))
        for output in engine.step():
            if output.finished:
                answers[output.request_id] = list(output.outputs[0].token_ids)
        step += 1
    return [answers[f"staggered-{index}"] for index in range(len(requests))]
