"""Drafts that are trees, on an NPU: the answers of a CPU without speculation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from tests.ascend.environment import CPU, NPU
from tests.ascend.matrix import GREEDY, Case, capture_sizes
from tests.ascend.processes import ACCEPTED, Outcome, Run, assert_same_drafts, tokens_of
from tests.ascend.test_same_drafts import DRAFTS_OF
from tests.e2e.scripted_trees import PARENTS
from tests.engines import assert_same
from tests.marks import unless
from vllm_ascend_spec.config.draft_tree import PATHS
from vllm_ascend_spec.upstream.limits import NO_TREES

pytestmark = [unless(NO_TREES), pytest.mark.timeout(900)]

# Drafts follow siblings, also of siblings: passes of the draft go back in the text.
BRANCHED = [(0,), (0, 0), (0, 0, 0), (1,), (0, 1), (0, 1, 0), (1, 0), (1, 0, 0), (1, 1)]
# Each with as many drafts as the second says.
TREES: dict[str, tuple[dict[str, Any], int]] = {
    "eagle3": ({"speculative_token_tree": BRANCHED}, 9),
    "eagle": ({"tree": "5x3"}, 15),
    "mtp": ({"speculative_token_tree": BRANCHED}, 9),
    "draft_model": ({"speculative_token_tree": BRANCHED}, 9),
    "medusa": ({"tree": 12}, 12),
    "peagle": ({"tree": 9}, 9),
    "pard": ({"tree": "3x3"}, 9),
    "dflash": ({"tree": 8}, 8),
    "ngram": ({"tree": 12}, 12),
    "suffix": ({"tree": 8}, 8),
}
# Those that find theirs in the text.
FOUND = ("ngram", "suffix")
MODES = ("eager", "full_decode_only", "default")
# What a request may ask for changes nothing of what an NPU does; so they are asked for once.
EVERYTHING = ("greedy", "penalties", "structured", "seeded", "switched", "alone")
# Kinds that answer as another one does.
SAME = {"switched": "greedy", "alone": "greedy"}


def asked_of(method: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what asks for a method's tree: of our section, and of the speculative config."""
    asked, size = TREES[method]
    section = {name: value for name, value in asked.items() if name == "tree"}
    paths = {name: value for name, value in asked.items() if name == PATHS}
    return section, {"num_speculative_tokens": size, **paths}


def case_of(
    method: str, mode: str, *requests: str, engine: dict[str, Any] | None = None, devices: int = 1
) -> Case:
    """Return an engine that drafts trees."""
    section, options = asked_of(method)
    return Case(
        method=method,
        mode=mode,
        engine={"additional_config": {"ascend_spec": section}, **(engine or {})},
        options=options,
        requests=requests or ("greedy", "seeded"),
        devices=devices,
    )


# Prompts in up to seven pieces, beside requests that verify trees.
CHUNKED = {"max_num_batched_tokens": 64, "max_num_seqs": 4}
PIECES = {"cudagraph_mode": "PIECEWISE", "cudagraph_capture_sizes": capture_sizes(len(BRANCHED))}
# One for each way in which trees are made, by a loop, by heads and from the text, and one for each
# way in which the target runs.
BY_DAY = {
    # With the kernel of trees held to the hardware's rules.
    "eagle3-full_decode_only": replace(
        case_of("eagle3", "full_decode_only", *EVERYTHING), checked=True
    ),
    "medusa-eager": case_of("medusa", "eager"),
    "ngram-default": case_of("ngram", "default", "greedy"),
}
BY_NIGHT = {
    f"{method}-{mode}": case_of(method, mode, "greedy", "seeded", "structured", "switched")
    for method in TREES
    for mode in MODES
    if f"{method}-{mode}" not in BY_DAY
}
BY_NIGHT |= {
    "eagle3-async": case_of(
        "eagle3", "full_decode_only", *EVERYTHING, engine={"async_scheduling": True}
    ),
    "eagle-eager-async": case_of("eagle", "eager", engine={"async_scheduling": True}),
    "eagle-tp2": case_of("eagle", "full_decode_only", devices=2),
    "medusa-eager-tp2": case_of("medusa", "eager", devices=2),
    "eagle3-preemption": case_of(
        "eagle3",
        "full_decode_only",
        engine={"num_gpu_blocks_override": 9, "enable_prefix_caching": False},
    ),
    "eagle3-chunked": case_of("eagle3", "eager", engine=CHUNKED),
    "ngram-chunked": case_of("ngram", "eager", engine=CHUNKED),
    # Graphs of pieces of the draft, each of which returns its states in the same memory.
    "eagle3-piecewise": case_of("eagle3", "default", engine={"compilation_config": PIECES}),
    "eagle3-end": case_of("eagle3", "full_decode_only", engine={"max_model_len": 405}),
}
CASES = BY_DAY | BY_NIGHT
# Those whose drafts follow siblings, and are noted.
COMPARED = [
    name
    for name in CASES
    if PATHS in CASES[name].options and name not in {"eagle3-async", "eagle3-preemption"}
]


def parameters(names: Iterable[str]) -> list[Any]:
    """Return tests' parameters of some cases."""
    return [pytest.param(n, marks=() if n in BY_DAY else pytest.mark.nightly) for n in names]


def beside(outcome: Outcome) -> list[list[int]]:
    """Return the accepted paths that leave the principal chain."""
    return [rows for rows in outcome["paths"] if rows != list(range(len(rows)))]


@pytest.mark.parametrize("name", parameters(CASES))
def test_answers(name: str, run_engine: Run, on_cpu: Outcome) -> None:
    case = CASES[name]
    outcome = run_engine(case, has_trees=True)
    for kind in case.requests:
        expected = tokens_of(on_cpu, SAME.get(kind, kind))
        found = tokens_of(outcome, kind)
        if "max_model_len" in case.engine:
            assert min(map(len, found)) < max(map(len, found))
            expected = [e[: len(f)] for e, f in zip(expected, found, strict=True)]
        assert_same(found, expected)
    # Of several processes nobody notes the paths.
    assert beside(outcome) or case.devices > 1
    assert outcome["counters"][ACCEPTED] > 0
    if "preemption" in name:
        assert outcome["counters"]["vllm:num_preemptions"] > 0
    # Found trees are rarely all of one size; test_every_node_ends_the_accepted_path has such.
    if case.mode == "full_decode_only" and case.method not in FOUND:
        assert outcome["graph_steps_of"]["greedy"]["full"] > 0


def check_drafts(name: str, run_engine: Run) -> None:
    """Compare the drafts of an engine with those of a CPU, which has the same passes in order.

    A node's drafts depend on the text and the node's path alone.
    """
    case = CASES[name]
    found, expected = run_engine(case, has_trees=True), run_engine(case.for_cpu(), CPU)
    for kind in DRAFTS_OF:
        assert_same_drafts(found, expected, kind)
    # Row 0 is the text's last token, 1 to 3 are the principal chain.
    assert any(row > 3 for rows in found["paths"] for row in rows[1:-1])


@pytest.mark.parametrize("name", parameters(COMPARED))
def test_drafts_after_siblings_are_those_of_a_cpu(name: str, run_engine: Run) -> None:
    check_drafts(name, run_engine)


SCRIPTED = {
    mode: replace(
        case_of("ngram", mode, "greedy", "alone"),
        engine={"additional_config": {"ascend_spec": {"tree": len(PARENTS)}}},
        options={"num_speculative_tokens": len(PARENTS)},
    )
    for mode in MODES
}


def check_scripted(mode: str, run_engine: Run, on_cpu: Outcome, **job: Any) -> Outcome:
    """Compare the answers of an engine with trees in which each node is the last right one."""
    answers = tokens_of(on_cpu, "greedy")
    script = {"tree_answers": answers, "has_trees": True, "go_on": 24}
    outcome = run_engine(SCRIPTED[mode], NPU, **script, **job)
    for kind in ("greedy", "alone"):
        assert_same(tokens_of(outcome, kind), answers)
    length = GREEDY["max_tokens"] - script["go_on"]
    going_on = [tokens[:length] for tokens in tokens_of(outcome, "go_on")]
    assert_same(going_on, [tokens[script["go_on"] :] for tokens in answers])
    return outcome


@pytest.mark.parametrize(
    "mode", [pytest.param(m, marks=() if m == MODES[1] else pytest.mark.nightly) for m in MODES]
)
def test_every_node_ends_the_accepted_path(mode: str, run_engine: Run, on_cpu: Outcome) -> None:
    """What comes after such answers reads their keys from the prefix cache, too."""
    outcome = check_scripted(mode, run_engine, on_cpu)
    assert outcome["ended_at"] == list(range(len(PARENTS)))
    assert {rows[-1] for rows in outcome["paths"]} == set(range(len(PARENTS) + 1))
    if mode == "full_decode_only":
        assert outcome["graph_steps_of"]["greedy"]["full"] > 0
    hits = {
        kind: counted["vllm:prefix_cache_hits"] for kind, counted in outcome["counters_of"].items()
    }
    assert hits["go_on"] > hits["alone"]
