"""A target whose layers keep states, Qwen3.5."""

from __future__ import annotations

from typing import Any

from tests.ascend.matrix import MODES, Case, K, capture_sizes
from tests.zoo import ZOO

# Qwen3.5's Gated DeltaNet layers, which keep a state.
QWEN35 = str(ZOO / "target-qwen35")
STATE_METHODS: dict[str, dict[str, Any]] = {
    "mtp": {"model": QWEN35},
    "ngram": {"prompt_lookup_min": 1, "num_speculative_tokens": 3},
    "suffix": {"num_speculative_tokens": 3},
    # Drafts of every length that are right up to every place, see tests/e2e/scripted.py.
    "custom_class": {"model": "tests.e2e.scripted.Scripted"},
}


def state_case(method: str, mode: str, **changed: Any) -> Case:
    """Return a case of that target."""
    engine = {"model": QWEN35, **changed.pop("engine", {})}
    options = STATE_METHODS[method] | changed.pop("options", {})
    return Case(method=method, mode=mode, engine=engine, options=options, **changed)


NO_PREFIXES = {"enable_prefix_caching": False}
STATE_CASES: dict[str, Case] = {
    # The later kinds find the prompts of the first one in the prefix cache.
    "mtp-eager": state_case("mtp", "eager", requests=("greedy", "logprobs"), watched=True),
    "mtp-full_decode_only": state_case(
        "mtp",
        "full_decode_only",
        engine=NO_PREFIXES,
        requests=("greedy", "seeded", "seeded_in_twos"),
        watched=True,
    ),
    "mtp-default": state_case(
        "mtp", "default", engine={"async_scheduling": True}, requests=("greedy", "crowd")
    ),
    "custom_class-eager": state_case(
        "custom_class", "eager", engine=NO_PREFIXES, requests=("greedy", "crowd")
    ),
}
# The others by night.
NIGHTLY_STATE_CASES = {
    f"{method}-{mode}-{name}": state_case(method, mode, engine=engine, requests=("greedy", "crowd"))
    for method in STATE_METHODS
    for mode in MODES
    for name, engine in (("prefixes", {}), ("none", NO_PREFIXES))
}
NIGHTLY_STATE_CASES |= {
    f"mtp-{mode}-async-{name}": state_case(
        "mtp",
        mode,
        engine={**engine, "async_scheduling": True},
        requests=("greedy", "crowd"),
    )
    for mode in MODES
    for name, engine in (("prefixes", {}), ("none", NO_PREFIXES))
}
NIGHTLY_STATE_CASES |= {
    f"mtp-{mode}-one": state_case(
        "mtp", mode, requests=("greedy", "crowd"), options={"num_speculative_tokens": 1}
    )
    for mode in MODES
}
# Steps too small for all requests that run, beside prompts in pieces, some of one token.
SMALL_STEPS = {"max_num_batched_tokens": 41, "max_num_seqs": 4}


def small_steps(mode: str) -> dict[str, Any]:
    """Return that engine in a mode: graphs for more requests than run are refused."""
    graphs = MODES[mode].get("compilation_config")
    sizes = {"cudagraph_capture_sizes": capture_sizes(K)[:-1]}
    own = {} if graphs is None else {"compilation_config": {**graphs, **sizes}}
    return {**NO_PREFIXES, **SMALL_STEPS, **own}


NIGHTLY_STATE_CASES |= {
    f"{method}-{mode}-pieces": state_case(
        method, mode, engine=small_steps(mode), requests=("greedy", "crowd")
    )
    for method in ("mtp", "custom_class")
    for mode in MODES
}
NIGHTLY_STATE_CASES["mtp-default-async-pieces"] = state_case(
    "mtp",
    "default",
    engine={**small_steps("default"), "async_scheduling": True},
    requests=("greedy", "crowd"),
)
# Two ranks have half of the heads that keep a state, each.
NIGHTLY_STATE_CASES |= {
    f"mtp-{mode}-tp2": state_case("mtp", mode, devices=2, requests=("greedy", "crowd"))
    for mode in MODES
}
STATE_CASES |= NIGHTLY_STATE_CASES
