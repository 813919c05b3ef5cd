"""One engine in a process of its own: vllm-ascend keeps much of it in globals.

``python -m tests.ascend.engine`` reads a job from stdin and writes what came of it to the file that
it names, both as JSON. The simulated NPU's engines are started by ``tests/ascend/warm.py``.
"""

from __future__ import annotations

import copy
import gc
import importlib
import itertools
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.ascend.environment import KERNEL_CHECKS
from tests.ascend.matrix import KINDS
from tests.ascend.mutations import MUTATIONS
from tests.ascend.prompts import NUM_PROMPTS, prompts
from tests.pictures import with_pictures
from vllm_ascend_spec.upstream.limits import NO_LOOP_ON_NPU

STEPS = "vllm:spec_decode_graph_steps"
DRAFTS = "vllm:spec_decode_draft_graph_steps"
LENGTHS = "vllm:spec_decode_draft_length_steps"
VERIFIED = ("vllm:spec_decode_verified_requests", "vllm:spec_decode_verified_tokens")
# Of a step's time.
PARTS = ("step", "verification", "drafting")
COUNTERS = (
    "vllm:spec_decode_num_drafts",
    "vllm:spec_decode_num_draft_tokens",
    "vllm:spec_decode_num_accepted_tokens",
    "vllm:num_preemptions",
    "vllm:prefix_cache_hits",
)


def watch_draft_rows(rows: list[list[int]]) -> None:
    """Note, for every draft of a batch, on how many rows the draft model runs in each step."""
    if NO_LOOP_ON_NPU is not None:
        return
    from vllm_ascend_spec.methods.loops.ascend.loop import AscendDraftLoop as Mixin

    run_all, run_model = Mixin._run_merged_draft, Mixin._run_model

    def _run_merged_draft(self: Any, *args: Any, **kwargs: Any) -> Any:
        rows.append([])
        drafts = run_all(self, *args, **kwargs)
        rows[-1].append(drafts.shape[0])
        return drafts

    def _run_model(self: Any, num_tokens: int, inputs_embeds: Any) -> Any:
        rows[-1].append(num_tokens)
        return run_model(self, num_tokens, inputs_embeds)

    Mixin._run_merged_draft, Mixin._run_model = _run_merged_draft, _run_model


def watch_worker(worker: Any) -> None:
    """Note the same of a rank that has started before; run in its process.

    Of a draft that is one graph there is the number of requests alone.
    """
    from vllm_ascend_spec.methods.loops.ascend.loop import AscendDraftLoop as Mixin

    runner, run_model = worker.model_runner, Mixin._run_model
    draft, worker.draft_rows = runner.draft, []

    def noting_draft(step: Any) -> Any:
        worker.draft_rows.append([])
        drafts = draft(step)
        worker.draft_rows[-1].append(len(drafts))
        return drafts

    def _run_model(self: Any, num_tokens: int, inputs_embeds: Any) -> Any:
        worker.draft_rows[-1].append(num_tokens)
        return run_model(self, num_tokens, inputs_embeds)

    runner.draft, Mixin._run_model = noting_draft, _run_model


def take_rows(worker: Any) -> list[list[int]]:
    """Return what was noted since the last time; run in a rank's process."""
    rows, worker.draft_rows[:] = worker.draft_rows[:], []
    return rows


def rows_of_ranks(llm: Any) -> list[list[int]]:
    """Return what :func:`watch_worker` noted, which has to be the same on every rank."""
    first, *others = llm.collective_rpc(take_rows)
    assert all(rows == first for rows in others), "ranks draft on different rows"
    return first


def watch_drafts(llm: Any, seen: dict[str, list[Any]]) -> None:
    """Note the drafts of each request, and how many tokens its text had when they were made.

    With asynchronous scheduling they stay on the device, and nothing is noted.
    """
    scheduler = llm.llm_engine.engine_core.engine_core.scheduler
    update = scheduler.update_draft_token_ids

    def update_draft_token_ids(drafted: Any) -> None:
        update(drafted)
        for name in drafted.req_ids:
            request = scheduler.requests.get(name)
            # A prompt that goes on has none yet.
            if request is not None and not request.is_prefill_chunk:
                # What is beyond the end of the context nobody verifies.
                room = max(scheduler.max_model_len - request.num_tokens - 1, 0)
                drafts = request.spec_token_ids[:room]
                seen.setdefault(name, []).append([request.num_tokens, drafts])

    scheduler.update_draft_token_ids = update_draft_token_ids


def drafts_by_request(seen: dict[str, list[Any]]) -> list[list[Any]]:
    """Return what :func:`watch_drafts` has noted in the order of the prompts."""
    # Requests are numbered: "6-" and a random part.
    return [seen[name] for name in sorted(seen, key=lambda name: int(name.partition("-")[0]))]


def watch_paths(paths: list[list[int]]) -> None:
    """Note the rows of each request's accepted path, where drafts are trees."""
    from vllm_ascend_spec.worker.trees import TreesMixin

    settle = TreesMixin._settle

    def _settle(self: Any, metadata: Any, trees: Any) -> None:
        paths.extend([row for row in rows if row >= 0] for rows in trees.output_rows.tolist())
        settle(self, metadata, trees)

    TreesMixin._settle = _settle


def script_trees(llm: Any, answers: list[list[int]]) -> Any:
    """Let n-grams be trees whose right nodes are known, and return what makes them."""
    from tests.e2e.scripted_trees import TreeScript
    from vllm_ascend_spec.methods.ngram.drafter import NgramDrafter

    asked = map(llm.get_tokenizer().encode, prompts(len(answers)))
    script = TreeScript([a + b for a, b in zip(asked, answers, strict=True)])
    NgramDrafter.find_trees = script.method()
    return script


def go_on(llm: Any, answers: list[dict[str, Any]], length: int) -> list[dict[str, Any]]:
    """Return what comes after so many tokens of each answer, whose keys may be cached."""
    asked = map(llm.get_tokenizer().encode, prompts(len(answers)))
    texts = [a + b["tokens"][:length] for a, b in zip(asked, answers, strict=True)]
    return answer(llm, [{"prompt_token_ids": text} for text in texts], "greedy")


def answer(
    llm: Any, texts: list[Any], name: str, logprobs: int | None = None
) -> list[dict[str, Any]]:
    """Return the answers to one kind of request: token ids, and logprobs if asked for.

    Args:
        llm: the engine.
        texts: what to go on from.
        name: a key of ``KINDS``.
        logprobs: how many to return for every token, whatever the kind says.
    """
    from vllm import SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    wanted = KINDS[name]
    parameters = SamplingParams(**wanted["sampling"])
    if logprobs is not None:
        parameters.logprobs = logprobs
    if "choices" in wanted:
        parameters.structured_outputs = StructuredOutputsParams(choice=wanted["choices"])
    # What requests have in turn.
    extra = wanted.get("extra_args", (None,))
    each = [copy.copy(parameters) for _ in texts]
    for one, extra_args in zip(each, itertools.cycle(extra)):
        one.extra_args = extra_args
    batch = wanted.get("batch", len(texts))
    answers = []
    for first in range(0, len(texts), batch):
        some = slice(first, first + batch)
        for output in llm.generate(texts[some], each[some], use_tqdm=False):
            completion = output.outputs[0]
            answers.append(
                {
                    "tokens": list(completion.token_ids),
                    "text": completion.text,
                    "logprobs": [
                        {str(token): entry.logprob for token, entry in place.items()}
                        for place in completion.logprobs or []
                    ],
                }
            )
    return answers


def counters(llm: Any) -> dict[str, float]:
    """Return vLLM's counters."""
    return {m.name: m.value for m in llm.get_metrics() if m.name in COUNTERS}


def graph_steps(llm: Any) -> dict[str, float]:
    """Return how many steps replayed each graph, or none for which reason."""
    found = (m for m in llm.get_metrics() if m.name == STEPS)
    return {f"{m.labels['graph']} {m.labels['reason']}".strip(): m.value for m in found}


def draft_graphs(llm: Any) -> dict[str, float]:
    """Return in how many steps a model's draft replayed each graph, or none."""
    found = (m for m in llm.get_metrics() if m.name == DRAFTS)
    return {m.labels["graph"]: m.value for m in found}


def lengths(llm: Any) -> dict[str, float]:
    """Return how many steps had each K."""
    found: Counter[str] = Counter()
    for metric in llm.get_metrics():
        if metric.name == LENGTHS:
            found[metric.labels["k"]] += metric.value
    return dict(found)


def verified(llm: Any) -> list[float]:
    """Return how many verifications our counters have, and how many tokens these gave."""
    found: Counter[str] = Counter()
    for metric in llm.get_metrics():
        if metric.name in VERIFIED:
            found[metric.name] += metric.value
    return [found[name] for name in VERIFIED]


def seconds() -> dict[str, float]:
    """Return where the time of steps went; ``LLM.get_metrics`` has whole seconds only."""
    from prometheus_client import REGISTRY

    names = {part: f"vllm:spec_decode_{part}_seconds_total" for part in PARTS}
    labels = {"engine": "0"}
    return {part: REGISTRY.get_sample_value(name, labels) or 0 for part, name in names.items()}


def quick_kernels() -> None:
    """Let the emulator check no rule, and run few cores: eight times as fast, and the same results.

    tests/ops/ascendc/ has the kernels checked on any number of cores, and by day an engine for each
    of them is; by night all are.
    """
    from ops.emulator.library import CORES_VARIABLE

    os.environ |= {KERNEL_CHECKS: "0", CORES_VARIABLE: "8"}


@contextmanager
def garbage_stays() -> Iterator[None]:
    """Let an engine that starts look for no garbage.

    It does so once for each graph, too, and would look at all that was imported and compiled each
    time: a third of its start.
    """
    collect, gc.collect = gc.collect, lambda *_: 0
    gc.disable()
    yield
    gc.collect = collect
    gc.collect()
    gc.freeze()
    gc.enable()


def make_engine(job: dict[str, Any]) -> Any:
    """Start the engine."""
    from vllm import LLM

    with garbage_stays():
        return LLM(**job["arguments"], speculative_config=job["spec"])


def leave_out(names: list[str]) -> None:
    """Let patches not be applied, and take out those that are."""
    from vllm_ascend_spec.patches import registry

    registry.PATCHES = tuple(patch for patch in registry.PATCHES if patch.name not in names)
    for name in names:
        importlib.import_module(f"vllm_ascend_spec.patches.{name}").revert()


def choose_in_turn(llm: Any, chosen: list[int]) -> None:
    """Choose K in turn, whatever pays."""
    from vllm_ascend_spec.control.adaptive_k import PAYS, KChoice

    turn = itertools.cycle(chosen)
    for kind in llm.llm_engine.engine_core.engine_core.scheduler.classes.values():
        kind.chooser.choose = lambda requests: KChoice(next(turn), PAYS)


def timed_lengths(llm: Any) -> list[int]:
    """Return each K of which single requests were timed, where K is chosen."""
    classes = getattr(llm.llm_engine.engine_core.engine_core.scheduler, "classes", None)
    cells = classes[False].chooser.costs.cells() if classes else {}
    return sorted(k for n, k in cells if n == 1)


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Start the engine and ask it everything, one kind of request after the other."""
    from vllm.platforms import current_platform

    if "mutation" in job:
        MUTATIONS[job["mutation"]].put_in()
    leave_out(job.get("without", []))
    if not job["checked"] and "TESTS_COMPILE_ALL" not in os.environ:
        quick_kernels()
    if "scripted" in job:
        from tests.e2e.scripted import Scripted

        Scripted.texts = job["scripted"]
    rows: list[list[int]] = []
    is_split = job["watched"] and job["arguments"].get("tensor_parallel_size", 1) > 1
    if job["watched"] and not is_split:
        watch_draft_rows(rows)
    paths: list[list[int]] = []
    if job.get("has_trees"):
        watch_paths(paths)
    llm = make_engine(job)
    script = script_trees(llm, job["tree_answers"]) if "tree_answers" in job else None
    if is_split:
        llm.collective_rpc(watch_worker)
    at_start, timed = rows[:], timed_lengths(llm)
    if "chosen" in job:
        choose_in_turn(llm, job["chosen"])
    drafts: dict[str, list[Any]] = {}
    watch_drafts(llm, drafts)
    answers, counted, drafted, stepped, drafts_of = {}, {}, {}, {}, {}
    for name in job["requests"]:
        before, first, earlier = counters(llm), len(rows), graph_steps(llm)
        texts = prompts(KINDS[name].get("prompts", NUM_PROMPTS))
        texts = with_pictures(texts) if KINDS[name].get("pictures") else texts
        answers[name] = answer(llm, texts, name, job.get("logprobs"))
        counted[name] = {key: value - before[key] for key, value in counters(llm).items()}
        drafted[name] = rows_of_ranks(llm) if is_split else rows[first:]
        drafts_of[name] = drafts_by_request(drafts)
        drafts.clear()
        stepped[name] = {k: v - earlier.get(k, 0) for k, v in graph_steps(llm).items()}
    before = counters(llm)
    if "go_on" in job:
        answers["go_on"] = go_on(llm, answers["greedy"], job["go_on"])
        counted["go_on"] = {key: value - before[key] for key, value in counters(llm).items()}
    return {
        "platform": type(current_platform).__name__,
        "scheduler": type(llm.llm_engine.engine_core.engine_core.scheduler).__name__,
        "timed": timed,
        "answers": answers,
        "counters": counters(llm),
        "counters_of": counted,
        "drafts_of": drafts_of,
        "draft_rows_at_start": at_start,
        "draft_rows_of": drafted,
        "graph_steps_of": stepped,
        "lengths": lengths(llm),
        "draft_graphs": draft_graphs(llm),
        "seconds": seconds(),
        "verified": verified(llm),
        "paths": paths,
        "ended_at": sorted(script.ended_at) if script else [],
    }


def main(job: dict[str, Any]) -> None:
    """Run a job and write what came of it to the file that it names."""
    Path(job["output"]).write_text(json.dumps(run(job)))


if __name__ == "__main__":
    main(json.loads(sys.stdin.read()))
