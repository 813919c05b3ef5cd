"""Targets with experts, and a gpt-oss with windows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.ascend.matrix import MODES, Case
from tests.zoo import MIXTURES, ZOO, spec_of_mixture


def of_mixture(name: str, method: str, mode: str, /, **settings: Any) -> Case:
    """Return a case of one of the zoo's targets with experts; eagle3's head is its own.

    Args:
        name: of the target's folder, after ``target-``.
        method: ``eagle3``, or one without a draft model.
        mode: a key of :data:`MODES`.
        settings: the case's others; ``engine`` is added to.
    """
    engine = {"model": str(ZOO / f"target-{name}"), **settings.pop("engine", {})}
    options = spec_of_mixture(name) if method == "eagle3" else {}
    return Case(method=method, mode=mode, engine=engine, options=options, **settings)


EXPERT_PARALLEL = {"enable_expert_parallel": True}
# How two ranks share a layer of experts: each expert by halves, or whole ones; FlashComm is
# vllm-ascend's sequence parallelism.
RANKS: dict[str, dict[str, Any]] = {
    "tp": {},
    "ep": EXPERT_PARALLEL,
    "sp": {**EXPERT_PARALLEL, "additional_config": {"enable_flashcomm1": True}},
}
PIECES = {"max_num_batched_tokens": 48, "max_num_seqs": 4}
MIXTURE_CASES: dict[str, Case] = {}
for _name in MIXTURES:
    MIXTURE_CASES |= {
        f"{_name}-eagle3-{mode}": of_mixture(
            _name, "eagle3", mode, requests=("greedy", "alone", "seeded"), watched=True
        )
        for mode in MODES
    }
    MIXTURE_CASES |= {
        f"{_name}-ngram-{mode}": of_mixture(_name, "ngram", mode, requests=("greedy", "alone"))
        for mode in MODES
    }
    MIXTURE_CASES |= {
        f"{_name}-{method}-pieces": of_mixture(_name, method, "default", engine=PIECES)
        for method in ("eagle3", "ngram")
    }
    MIXTURE_CASES |= {
        f"{_name}-{method}-{mode}-async": of_mixture(
            _name,
            method,
            mode,
            engine={"async_scheduling": True, "enable_prefix_caching": False},
            requests=("greedy", "crowd"),
        )
        for method, mode in (("eagle3", "full_decode_only"), ("eagle3", "eager"))
    }
    MIXTURE_CASES |= {
        f"{_name}-{method}-{mode}-{how}2": of_mixture(
            _name,
            method,
            mode,
            devices=2,
            engine=engine,
            requests=("greedy", "crowd"),
            watched=method == "eagle3",
        )
        for how, engine in RANKS.items()
        for method, mode in (
            ("eagle3", "eager"),
            ("eagle3", "full_decode_only"),
            ("eagle3", "default"),
            ("ngram", "full_decode_only"),
        )
    }
MIXTURE_CASES["qwen3-moe-eagle3-full_decode_only-ep4"] = replace(
    MIXTURE_CASES["qwen3-moe-eagle3-full_decode_only-ep2"], devices=4
)
# Each engine by day is one more start: the head in graphs with windows, and with ranks that share
# experts; an engine of one NPU is less of both.
MIXTURES_BY_DAY = ("gpt-oss-eagle3-full_decode_only", "qwen3-moe-eagle3-full_decode_only-ep2")
