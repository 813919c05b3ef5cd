"""Engines and what is asked of them: on the simulated NPU here, on silicon in tests/npu."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.engines import with_fixed_length
from tests.zoo import EVERY, TARGET, WITH_A_LOOP, target_of
from vllm_ascend_spec.upstream.limits import NO_LOOP_ON_NPU
from vllm_ascend_spec.upstream.ranges import vllm_ascend_is

ENGINE: dict[str, Any] = {
    "model": TARGET,
    "dtype": "float32",
    "max_model_len": 512,
    "max_num_seqs": 8,
    # A dummy run of vLLM's default, 8192 tokens, takes minutes on a simulated NPU.
    "max_num_batched_tokens": 512,
    "kv_cache_memory_bytes": 64 << 20,
    "disable_log_stats": False,
    "async_scheduling": False,
    "seed": 0,
    # The zoo's models do not reason; a word that they often write begins a thought.
    "reasoning_config": {"reasoning_start_str": "self", "reasoning_end_str": "# done\n"},
}
# Of most of the zoo's methods, and what engines without speculation are compared with.
K = 3


def capture_sizes(k: int) -> list[int]:
    """Return the sizes for 1, 4 and 8 requests; batches of other sizes are padded."""
    return [n * (k + 1) for n in (1, 4, 8)]


def modes(k: int = K) -> dict[str, dict[str, Any]]:
    """Return how the target runs, by name, with that many drafts."""
    sizes = {"cudagraph_capture_sizes": capture_sizes(k)}
    return {
        "eager": {"enforce_eager": True},
        "full_decode_only": {"compilation_config": {"cudagraph_mode": "FULL_DECODE_ONLY", **sizes}},
        "default": {"compilation_config": sizes},
    }


MODES = modes()
# A context that two of the prompts and their answers do not fit in.
END = 405
CHOICES = ["yes", "no", "perhaps"]
# What requests ask for, by name. "seeded" and "seeded_in_twos" differ in the batches they run in.
# Enough for two of the prompts to grow into another block of the KV cache.
GREEDY = {"temperature": 0, "ignore_eos": True, "max_tokens": 32}
REQUESTS: dict[str, dict[str, Any]] = {
    "greedy": {"sampling": GREEDY},
    "penalties": {"sampling": {**GREEDY, "repetition_penalty": 1.15, "presence_penalty": 0.2}},
    "min_tokens": {
        # Stop tokens are frequent ones.
        "sampling": {
            "temperature": 0,
            "max_tokens": 48,
            "min_tokens": 24,
            "stop_token_ids": [11, 14, 199, 203, 220, 262],
        }
    },
    "thinking_budget": {"sampling": {**GREEDY, "thinking_token_budget": 5}},
    "structured": {"sampling": {"temperature": 0, "max_tokens": 8}, "choices": CHOICES},
    "logprobs": {"sampling": {**GREEDY, "max_tokens": 8, "logprobs": 2}},
    "seeded": {"sampling": {**GREEDY, "temperature": 0.8, "top_p": 0.95, "seed": 11}},
    "seeded_in_twos": {
        "sampling": {**GREEDY, "temperature": 0.8, "top_p": 0.95, "seed": 11},
        "batch": 2,
    },
}
# Those whose drafts are made in graphs where the target's are full.
DRAFTS_IN_GRAPHS = (*WITH_A_LOOP, "hybrid")
# More requests than an engine takes at once: batches of every size, as they come to their ends.
CROWD: dict[str, Any] = {"sampling": {**GREEDY, "max_tokens": 14}, "prompts": 24}
# Requests that want as many drafts as there are, none, or one.
SWITCHED: dict[str, Any] = {
    "sampling": GREEDY,
    "extra_args": (None, {"speculation": "off"}, {"speculation": 1}),
}
# Answers of which the two longest pass a block of a model that keeps states.
LONG: dict[str, Any] = {"sampling": {**GREEDY, "max_tokens": 160}}
# A request at a time.
ALONE: dict[str, Any] = {"sampling": GREEDY, "batch": 1}
# What else a token might have been.
TOP_TWO: dict[str, Any] = {"sampling": {**GREEDY, "logprobs": 2}}
# Texts and texts with pictures side by side.
PICTURES: dict[str, Any] = {"sampling": GREEDY, "pictures": True, "prompts": 12}
PICTURES_ALONE: dict[str, Any] = {**PICTURES, "batch": 1}
KINDS = {
    **REQUESTS,
    "crowd": CROWD,
    "switched": SWITCHED,
    "top_two": TOP_TWO,
    "long": LONG,
    "alone": ALONE,
    "pictures": PICTURES,
    "pictures_alone": PICTURES_ALONE,
}
# The same on every device, with and without speculation.
# vllm-ascend 0.23 knows no budgets of thoughts (vllm_ascend/worker/npu_input_batch.py).
EXACT = ("greedy", "penalties", "min_tokens", "structured", "seeded")
EXACT += ("thinking_budget",) * (not vllm_ascend_is("<0.30"))
SPECULATIVE = (
    "ngram",
    "suffix",
    "draft_model",
    "pard",
    "eagle",
    "eagle3",
    "mtp",
    "peagle",
    "dflash",
    "dspark",
    "medusa",
    "mlp_speculator",
    "custom_class",
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One engine.

    Attributes:
        method: of speculation; None without.
        mode: a key of :data:`MODES`.
        engine: further arguments of the engine.
        requests: keys of :data:`KINDS`.
        devices: how many NPUs it wants.
        watched: whether the rows of each draft step are noted, for test_draft_width.py.
        checked: whether our kernels are held to the hardware's rules, on all of its cores; see
            ``quick_kernels`` in tests/ascend/engine.py.
        options: further ones of ``speculative_config``.
    """

    method: str | None
    mode: str
    engine: Mapping[str, Any] = field(default_factory=dict)
    requests: tuple[str, ...] = ("greedy",)
    devices: int = 1
    watched: bool = False
    checked: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    def spec(self) -> dict[str, Any] | None:
        """Return the speculative config."""
        return None if self.method is None else {**EVERY[self.method], **self.options}

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of ``LLM``, but for the speculative config."""
        parallel = {"tensor_parallel_size": self.devices} if self.devices > 1 else {}
        spec = self.spec()
        model = {"model": target_of(spec)}
        mode = modes(K if spec is None else spec["num_speculative_tokens"])[self.mode]
        arguments = {**ENGINE, **model, **mode, **parallel, **self.engine}
        return arguments if spec is None else with_fixed_length(arguments)

    def for_cpu(self) -> Case:
        """Return what a CPU is asked for the drafts to expect.

        One engine for all modes: they depend on a request's text alone, and on where its context
        ends, not on how prompts are read and what runs beside it.
        """
        kept = ("max_model_len", "model")
        engine = {name: value for name, value in self.engine.items() if name in kept}
        same = {"mode": "eager", "engine": engine, "devices": 1, "watched": False, "checked": False}
        # In a full graph drafts are greedy, elsewhere sampled where a request samples.
        is_greedy = self.method in DRAFTS_IN_GRAPHS and not self.samples_eagerly()
        options = self.options | ({"draft_sample_method": "greedy"} if is_greedy else {})
        return replace(self, requests=("greedy", "seeded"), options=options, **same)

    def samples_eagerly(self) -> bool:
        """Tell whether sampled requests are answered without graphs, by a loop that samples."""
        return NO_LOOP_ON_NPU is None and self.mode == "eager" and "seeded" in self.requests


# What the verifier does to logits is the same for all methods, so one with sampled drafts and one
# without are asked for everything, in one mode; the others by night.
ASKED_EVERYTHING = ("eagle", "ngram")
# A seed's answers are the verifier's, whatever the drafts are. So only those two are asked by day
# to repeat them in other batches.
SEEDED = ("greedy", "seeded")


def asked_for(method: str, mode: str) -> tuple[str, ...]:
    """Return the kinds of requests of a method in a mode, by day."""
    if mode != "full_decode_only":
        return ("greedy",)
    return tuple(REQUESTS) if method in ASKED_EVERYTHING else SEEDED


# Every method in every mode.
CASES: dict[str, Case] = {
    f"{method}-{mode}": Case(
        method=method,
        mode=mode,
        requests=asked_for(method, mode),
        watched=method in WITH_A_LOOP,
        # All kernels but that of trees, with drafts of a model: test_trees.py has an engine, too.
        checked=(method, mode) == ("eagle", "full_decode_only"),
    )
    for method in SPECULATIVE
    for mode in MODES
}
ASKED_MORE = {
    f"{method}-asked-more": Case(
        method=method,
        mode="full_decode_only",
        requests=(*SEEDED, *(kind for kind in REQUESTS if kind not in SEEDED)),
    )
    for method in SPECULATIVE
    if method not in ASKED_EVERYTHING
}
CASES |= ASKED_MORE
# Without graphs drafts of sampled requests are sampled, too; by day in draft_model-eager-end.
SAMPLED_DRAFTS = {
    f"{method}-eager-seeded": Case(method=method, mode="eager", requests=SEEDED)
    for method in SPECULATIVE
}
CASES |= SAMPLED_DRAFTS
CASES |= {
    f"{method}-{mode}-tp2": Case(method=method, mode=mode, devices=2)
    for method, mode in (
        ("eagle", "eager"),
        ("eagle", "full_decode_only"),
        ("ngram", "eager"),
        ("ngram", "full_decode_only"),
        ("mtp", "full_decode_only"),
    )
}
CASES["eagle-async"] = Case(
    method="eagle",
    mode="full_decode_only",
    engine={"async_scheduling": True},
    requests=EXACT,
)
CASES["eagle-eager-async"] = Case(
    method="eagle",
    mode="eager",
    engine={"async_scheduling": True},
    requests=(*SEEDED, "logprobs"),
)
CASES |= {
    "hybrid-eager": Case(
        method="hybrid", mode="eager", requests=("greedy", "seeded", "seeded_in_twos")
    ),
    "hybrid-full_decode_only": Case(method="hybrid", mode="full_decode_only", requests=SEEDED),
    "hybrid-default": Case(method="hybrid", mode="default"),
}
# How steps are scheduled, and who drafts, changes nothing of what the verifier is asked for.
ASKED_MORE |= {
    f"{name}-asked-more": replace(CASES[name], requests=(*EXACT, "logprobs"))
    for name in ("eagle-eager-async", "hybrid-full_decode_only")
}
CASES |= ASKED_MORE
# Six answers of up to four blocks each, and seven blocks: requests are thrown out and start again.
CASES["eagle-preemption"] = Case(
    method="eagle",
    mode="full_decode_only",
    engine={"num_gpu_blocks_override": 8, "enable_prefix_caching": False},
)
# Prompts in up to nine pieces, beside requests that decode.
CASES["eagle-chunked"] = Case(
    method="eagle",
    mode="default",
    engine={"max_num_batched_tokens": 48, "max_num_seqs": 4},
    requests=("greedy", "seeded"),
)
# The two longest requests come to the end of their context, one after the other, in the midst of a
# draft.
CASES |= {
    f"{method}-{mode}-end": Case(
        method=method,
        mode=mode,
        engine={"max_model_len": END},
        requests=("greedy", "seeded", "seeded_in_twos"),
    )
    for method, mode in (
        ("eagle", "full_decode_only"),
        ("draft_model", "eager"),
        ("pard", "full_decode_only"),
        ("dflash", "full_decode_only"),
        ("dspark", "full_decode_only"),
    )
}
# vllm-ascend's own loop has the Markov head, too.
CASES["dspark-stock"] = Case(
    method="dspark",
    mode="eager",
    engine={"additional_config": {"ascend_spec": {"draft_loop": "stock"}}},
    requests=("greedy", "structured"),
)
# Each drafts as another method does, in the same places of a step: the host looks the text up,
# heads read the last states, a pass reads masks. By day they run in one mode.
AS_ANOTHER = ("suffix", "custom_class", "mlp_speculator", "peagle")
BY_NIGHT = {f"{method}-{mode}" for method in AS_ANOTHER for mode in ("eager", "default")}
# Drafts outside of graphs are the same beside any graph of the target, and those are others' too.
BY_NIGHT |= {f"{method}-default" for method in ("pard", "dflash", "dspark", "medusa")}
# Asked for the same, and for a context that ends: pard-full_decode_only-end and dflash's.
BY_NIGHT |= {"pard-full_decode_only", "dflash-full_decode_only"}
# Masks end where those of dflash end.
BY_NIGHT |= {"dspark-full_decode_only-end", "dspark-stock"}
BY_NIGHT |= ASKED_MORE.keys()
BY_NIGHT |= SAMPLED_DRAFTS.keys()
# The loop of an MTP layer is eagle's, and deepseek-default has such a layer.
BY_NIGHT |= {"mtp-default"}
# Likewise that of an EAGLE-3 head, and of a draft model: by day eagle's runs beside every graph of
# the target, theirs in full graphs, and a draft model's without any in draft_model-eager-end.
BY_NIGHT |= {"eagle3-eager", "eagle3-default", "draft_model-eager", "draft_model-default"}
# One pass of a model without graphs is that of dflash-eager; theirs run by day beside full graphs.
BY_NIGHT |= {"pard-eager", "dspark-eager"}
# The host looks n-grams up whatever graphs the target has: by day none, and full ones.
BY_NIGHT |= {"ngram-default"}
# By day test_request_drafts.py has asynchronous scheduling without graphs, eagle-async with them.
BY_NIGHT |= {"eagle-eager-async"}
# By day two NPUs draft in full graphs in test_mixtures.py, where they share experts, too; with such
# graphs, ranks run steps that have prompts without one, drafts and all. Ranks look n-grams up alike
# on any device, and by day on two processes of a CPU: tests/e2e/test_tensor_parallel.py.
BY_NIGHT |= {"eagle-eager-tp2", "ngram-eager-tp2", "ngram-full_decode_only-tp2"}
BY_NIGHT |= {"eagle-full_decode_only-tp2", "mtp-full_decode_only-tp2"}
# Its graphs are eagle-chunked's, whose prompts are in pieces besides; deepseek-default has the rows
# of later draft steps.
BY_NIGHT |= {"eagle-default", "hybrid-default"}
# By day an MTP layer drafts in full graphs in test_changing_k.py, and so do Qwen3.5's and
# DeepSeek's.
BY_NIGHT |= {"mtp-full_decode_only"}
# A class of a user's own drafts on the host, as ngram does in full graphs, and by day it runs
# without them in test_state_engines.py.
BY_NIGHT |= {"custom_class-full_decode_only"}


# With other versions of vllm-ascend, too.
CORE = (
    *("eagle-eager", "eagle-full_decode_only", "mtp-eager"),
    *("dflash-eager", "ngram-eager", "medusa-eager"),
)


def by_day_or_night(names: Iterable[str], by_night: Collection[str] = BY_NIGHT) -> list[Any]:
    """Return tests' parameters of some cases, those that repeat a path marked so."""
    marks = {"nightly": by_night, "core": CORE}
    return [
        pytest.param(name, marks=[getattr(pytest.mark, m) for m, of in marks.items() if name in of])
        for name in names
    ]
