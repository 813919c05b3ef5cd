"""Measure one contender on the held-out prompts, in a process of its own.

``python -m vllm_ascend_spec.training.measure NAME OUTPUT``: an engine holds its memory as long as
its process lives. The result is a file in the output folder; a second start does not repeat it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vllm_ascend_spec.config.schema import WITHOUT_SPECULATION
from vllm_ascend_spec.metrics.acceptance import from_engine
from vllm_ascend_spec.training.atomic import write_whole
from vllm_ascend_spec.training.contenders import CONTENDERS
from vllm_ascend_spec.training.engine import start_engine
from vllm_ascend_spec.training.output import Output
from vllm_ascend_spec.training.process import leave, show, status_of
from vllm_ascend_spec.training.settings import Settings
from vllm_ascend_spec.training.speculation import ADDITIONAL, section_for, with_section

# More would only take longer: with 64 answers the figures are good to a few percent.
MOST_PROMPTS, MOST_TOKENS = 64, 256
# Requests that run at once unless `--max-num-seqs` says otherwise.
AT_ONCE = 8
WARM_UP_TOKENS = 8
# Options of our section for serving, and such as fit adaptive lengths alone.
NOT_MEASURED = frozenset({*WITHOUT_SPECULATION, "draft_lengths"})
GREEDY, SAMPLED = "greedy", "T=0.8"
REQUESTS: Mapping[str, float] = {GREEDY: 0.0, SAMPLED: 0.8}


def part(output: Output, name: str) -> Path:
    """Return the file with what was measured of a contender."""
    return output.proof / f"{name}.json"


def held_out(settings: Settings) -> list[list[int]]:
    """Return the tokens of the prompts to measure with."""
    found: list[list[int]] = json.loads(Output(settings.output).held_out.read_text())
    return found[:MOST_PROMPTS]


def at_once(settings: Settings) -> int:
    """Return how many requests run at the same time."""
    return min(int(settings.engine.get("max_num_seqs", AT_ONCE)), len(held_out(settings)))


def own_arguments(settings: Settings, spec: dict[str, Any] | None) -> dict[str, Any]:
    """Return the arguments of ``vllm.LLM`` that a measurement needs, whatever the user's are."""
    own: dict[str, Any] = {"disable_log_stats": False, "speculative_config": spec}
    if spec is None:
        return own
    section = section_for(settings.engine, spec)
    # Every step is to draft as many as asked, whether it pays here or not.
    fixed = {name: value for name, value in section.items() if name not in NOT_MEASURED}
    engine = with_section(settings.engine, {**fixed, "draft_length": "fixed"})
    return {**own, ADDITIONAL: engine[ADDITIONAL]}


def measure(llm: Any, prompts: Sequence[list[int]], params: Sequence[Any]) -> dict[str, Any]:
    """Let an engine answer prompts, and return what its drafts were worth.

    Args:
        llm: ``vllm.LLM``, with statistics.
        prompts: their tokens.
        params: ``SamplingParams`` of each.

    Returns:
        ``tokens_per_step``: tokens of a request for each of its steps after the first one, steps
        without drafts included; ``per_position``: share of the drafted steps that accepted the
        draft at each position; ``steps`` of all requests after their first; ``tokens``,
        ``seconds``, and the ``answers``.
    """
    before, begin = from_engine(llm.get_metrics()), time.monotonic()
    outputs = llm.generate(
        [{"prompt_token_ids": tokens} for tokens in prompts], list(params), use_tqdm=False
    )
    seconds = time.monotonic() - begin
    counted = from_engine(llm.get_metrics()) - before
    answers = [list(output.outputs[0].token_ids) for output in outputs]
    tokens = sum(map(len, answers))
    gained = counted.num_accepted_tokens
    # Drafts that are accepted may pass the end of an answer.
    undrafted = max(tokens - len(answers) - counted.num_drafts - gained, 0)
    steps = counted.num_drafts + undrafted
    return {
        "tokens_per_step": 1 + gained / steps if steps else 1.0,
        "per_position": counted.per_position,
        "acceptance_rate": counted.rate,
        "steps": steps,
        "tokens": tokens,
        "seconds": seconds,
        "tokens_per_second": tokens / seconds,
        "answers": answers,
    }


def run(name: str, settings: Settings, show: Callable[[str], object]) -> None:
    """Measure a contender and write its file.

    Args:
        name: a key of :data:`~vllm_ascend_spec.training.contenders.CONTENDERS`.
        settings: of the command.
        show: takes a line for each kind of request.
    """
    contender, output = CONTENDERS[name], Output(settings.output)
    prompts = held_out(settings)
    usual = {"max_num_seqs": AT_ONCE, "seed": settings.seed}
    llm = start_engine(settings, usual, own_arguments(settings, contender.spec(settings)))
    from vllm import SamplingParams

    warm_up = SamplingParams(temperature=0.0, max_tokens=WARM_UP_TOKENS)
    measure(llm, prompts[: at_once(settings)], [warm_up] * at_once(settings))
    results = {}
    for kind, temperature in REQUESTS.items():
        params = [
            SamplingParams(
                temperature=temperature,
                seed=settings.seed + place,
                max_tokens=min(
                    MOST_TOKENS, settings.sampling.max_tokens, settings.max_model_len - len(tokens)
                ),
                detokenize=False,
            )
            for place, tokens in enumerate(prompts)
        ]
        found = results[kind] = measure(llm, prompts, params)
        show(
            f"proof: {contender.title}, {kind}: {found['tokens_per_step']:.2f} tokens per step, "
            f"{found['tokens_per_second']:,.0f} tokens/s"
        )
    output.proof.mkdir(exist_ok=True)
    text = json.dumps(results)
    write_whole(part(output, name), lambda temporary: temporary.write_text(text))


def main(words: Sequence[str]) -> int:
    """Measure the contender that is named and return the exit status."""
    name, folder = words
    settings = Settings.load(Output(Path(folder)).settings)
    return status_of(lambda: run(name, settings, show))


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
