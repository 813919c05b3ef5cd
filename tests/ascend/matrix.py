"""Engines and what is asked of them: on the simulated NPU here, on silicon in tests/npu."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.engines import with_fixed_length
from tests.pictures import DRAFT, HEAD, MEDIA, NGRAM, QWEN25_VL
from tests.zoo import EVERY, MIXTURES, TARGET, WITH_A_LOOP, ZOO, spec_of_mixture, target_of
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
KINDS = {
    **REQUESTS,
    "crowd": CROWD,
    "switched": SWITCHED,
    "top_two": TOP_TWO,
    "long": LONG,
    "alone": ALONE,
    "pictures": PICTURES,
}
# The same on every device; a seed's numbers are the device's own.
# vllm-ascend 0.23 knows no budgets of thoughts (vllm_ascend/worker/npu_input_batch.py).
EXACT = ("greedy", "penalties", "structured") + ("thinking_budget",) * (not vllm_ascend_is("<0.30"))
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
        options: further ones of ``speculative_config``.
    """

    method: str | None
    mode: str
    engine: Mapping[str, Any] = field(default_factory=dict)
    requests: tuple[str, ...] = ("greedy",)
    devices: int = 1
    watched: bool = False
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
        """Return what a CPU is asked for the drafts and the draws to expect.

        One engine for all modes: both depend on a request's text alone, and on where its context
        ends, not on how prompts are read and what runs beside it.
        """
        kept = ("max_model_len", "model")
        engine = {name: value for name, value in self.engine.items() if name in kept}
        same = {"mode": "eager", "engine": engine, "devices": 1, "watched": False}
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
# A seed's draws are the verifier's, and drafts of every method are a CPU's, whatever runs beside
# them (test_same_drafts.py); so only those two are asked by day to repeat them in other batches.
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
    # A seed repeats where drafts do, and with asynchronous scheduling they do not, see
    # methods/loops/ascend/loop.py.
    requests=(*EXACT, "logprobs"),
)
# In a full graph a hybrid takes K drafts of the trees or none, so a seed draws otherwise there.
CASES |= {
    "hybrid-eager": Case(
        method="hybrid", mode="eager", requests=("greedy", "seeded", "seeded_in_twos")
    ),
    "hybrid-full_decode_only": Case(
        method="hybrid", mode="full_decode_only", requests=(*EXACT, "logprobs")
    ),
    "hybrid-default": Case(method="hybrid", mode="default"),
}
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
# Masks end where those of dflash end.
BY_NIGHT |= {"dspark-full_decode_only-end", "dspark-stock"}
BY_NIGHT |= ASKED_MORE.keys()
# dflash-eager reads the same states of the target. The loop of an MTP layer is eagle's, and
# deepseek-default has such a layer. eagle-eager-tp2 has the target, and ngram-full_decode_only-tp2
# drafts from the text.
BY_NIGHT |= {"eagle3-eager", "mtp-default", "ngram-eager-tp2"}


# With other versions of vllm-ascend, too.
CORE = (
    *("eagle-eager", "eagle-full_decode_only", "mtp-eager"),
    *("dflash-eager", "ngram-eager", "medusa-eager"),
)


def by_day_or_night(names: Iterable[str]) -> list[Any]:
    """Return tests' parameters of some cases, those that repeat a path marked so."""
    marks = {"nightly": BY_NIGHT, "core": CORE}
    return [
        pytest.param(name, marks=[getattr(pytest.mark, m) for m, of in marks.items() if name in of])
        for name in names
    ]


# Of the documents' limits of fused attention (tests/npu_sim/README.md): those that vllm-ascend's
# MLA exceeds; small heads, smaller than any DeepSeek's; and the gaps of queries, with prompts in
# pieces.
MLA_BEYOND = {"NPU_SIM_BEYOND": "head_size,nbsd_rows,paged_gaps,paged_heads,rope,contiguous"}
MLA_ENVIRONMENT = {
    **MLA_BEYOND,
    # Where nothing that is compiled is kept, as in these tests, vLLM takes a model for one that
    # changes its buffers if it finds the word "update" in its code, as in vllm-ascend's DeepSeek.
    "VLLM_USE_BYTECODE_HOOK": "0",
}
# DeepSeek's attention, MLA. vllm-ascend reads prompts in bfloat16 whatever the dtype is, and in
# float32 only those that are new and whole; all else is float32 then. So are verified rows.
MLA_ENGINE: dict[str, Any] = {"max_num_batched_tokens": 1280, "enable_prefix_caching": False}
# A seed repeats between modes where drafts are picked likewise; full graphs have greedy ones.
MLA_CASES: dict[str, Case] = {
    f"deepseek-{mode}": Case(
        method="mtp",
        mode=mode,
        engine=MLA_ENGINE,
        requests=tuple(REQUESTS) if mode == "full_decode_only" else ("greedy", "seeded"),
        options={
            "model": str(ZOO / "target-deepseek"),
            **({"draft_sample_method": "greedy"} if mode == "eager" else {}),
        },
    )
    for mode in MODES
}
# Prompts in pieces, of which later ones are read together with the cache of those before.
MLA_CASES["deepseek-chunked"] = Case(
    method="mtp",
    mode="default",
    engine={"dtype": "bfloat16", "max_num_batched_tokens": 48, "max_num_seqs": 4},
    options={"model": str(ZOO / "target-deepseek")},
)


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
            engine=EXPERT_PARALLEL if how == "ep" else {},
            requests=("greedy", "crowd"),
            watched=method == "eagle3",
        )
        for how in ("tp", "ep")
        for method, mode in (
            ("eagle3", "eager"),
            ("eagle3", "full_decode_only"),
            ("eagle3", "default"),
            ("ngram", "full_decode_only"),
        )
    }
# Each engine by day is one more start: the head in graphs with windows, and with ranks that share
# experts; an engine of one NPU is less of both.
MIXTURES_BY_DAY = ("gpt-oss-eagle3-full_decode_only", "qwen3-moe-eagle3-full_decode_only-ep2")
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
STATE_CASES |= NIGHTLY_STATE_CASES
# Sparse MLA, and experts. Everything is float32: prompts in pieces, too, and those that begin as
# an earlier one did.
SPARSE_MODEL = str(ZOO / "target-deepseek-v32")
SPARSE_CASES: dict[str, Case] = {
    f"sparse-{mode}": Case(
        method="mtp",
        mode=mode,
        requests=("greedy", "seeded"),
        watched=True,
        options={
            "model": SPARSE_MODEL,
            **({"draft_sample_method": "greedy"} if mode == "eager" else {}),
        },
    )
    for mode in MODES
}
SPARSE_CASES |= {
    "sparse-stock": replace(
        SPARSE_CASES["sparse-full_decode_only"],
        engine={"additional_config": {"ascend_spec": {"draft_loop": "stock"}}},
        watched=False,
    ),
    "sparse-async": Case(
        method="mtp",
        mode="full_decode_only",
        engine={"async_scheduling": True},
        requests=EXACT,
        options={"model": SPARSE_MODEL},
    ),
    "sparse-one-draft": Case(
        method="mtp",
        mode="default",
        requests=EXACT,
        options={"model": SPARSE_MODEL, "num_speculative_tokens": 1},
    ),
    "sparse-chunked": Case(
        method="mtp",
        mode="default",
        engine={"max_num_batched_tokens": 48, "max_num_seqs": 4},
        options={"model": SPARSE_MODEL},
    ),
    "sparse-tp2": Case(
        method="mtp",
        mode="full_decode_only",
        devices=2,
        engine={"enable_expert_parallel": True},
        options={"model": SPARSE_MODEL},
    ),
}
# By day one engine without graphs and one with full ones; the first is sparse-chunked's, too.
BY_NIGHT |= SPARSE_CASES.keys() - {"sparse-eager", "sparse-full_decode_only"}
# Qwen2.5-VL, of whose positions an image makes three dimensions.
VL_ENGINE: dict[str, Any] = {"model": QWEN25_VL, **MEDIA}
VL_CASES: dict[str, Case] = {
    f"{method}-{mode}": Case(
        method=method,
        mode=mode,
        engine=VL_ENGINE,
        requests=("pictures",),
        options=spec,
        watched=method != "ngram",
    )
    for method, spec in (("eagle3", HEAD), ("draft_model", DRAFT), ("ngram", NGRAM))
    for mode in MODES
}
# Images in pieces, beside requests that decode.
VL_CASES["eagle3-chunked"] = Case(
    method="eagle3",
    mode="default",
    engine={**VL_ENGINE, "max_num_batched_tokens": 40, "max_num_seqs": 4},
    requests=("pictures",),
    options=HEAD,
)
VL_CASES["eagle3-async"] = Case(
    method="eagle3",
    mode="full_decode_only",
    engine={**VL_ENGINE, "async_scheduling": True},
    requests=("pictures",),
    options=HEAD,
)
# K from step to step, each with its own full graphs.
VL_CASES["eagle3-changing"] = Case(
    method="eagle3",
    mode="full_decode_only",
    engine={**VL_ENGINE, "additional_config": {"ascend_spec": {"draft_length": "auto"}}},
    requests=("pictures",),
    options=HEAD,
)
