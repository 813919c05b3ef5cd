"""Configurations, right and wrong, made from the schema: every option with values of every kind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.zoo import SPECS, TARGET
from vllm_ascend_spec.config.options import ABSENT, INTERNAL, OPTIONS
from vllm_ascend_spec.config.schema import CHECKS
from vllm_ascend_spec.methods.registry import BUILT_IN as METHODS

NAN = float("nan")
# Of every kind that JSON has, at and beyond the bounds of most options.
VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    3,
    2.5,
    NAN,
    10**30,
    "",
    "1",
    "bogus",
    "x" * 300,
    "two\nlines\u2028and\x00more",
    [],
    [1, 0.5, 0.25],
    ["eagle"],
    {},
    {"a": {"b": 1}},
)
# Beyond those, by option: what is nearly right, and what is right.
MORE: dict[str, tuple[Any, ...]] = {
    "method": ("EAGLE", "eagle ", "mtp", "medusa", *METHODS),
    "model": ("/no/such/folder", "~nosuchuser/x", "~/x", TARGET, TARGET + "/config.json"),
    "num_speculative_tokens": (2, 15, 16, 3.0),
    "num_speculative_tokens_per_batch_size": (
        [[1, 4, 2], [5, 9, 0]],
        [[1, 4, 99]],
        [[1, 4, -1]],
        [[4, 1, 2]],
        [[2, 4, 2]],
        [[1, 4, 2], [4, 9, 1]],
        [[1, 4, 2], [6, 9, 1]],
        [[5, 9, 1], [1, 4, 2]],
        [[1, 4]],
        [[1, 4, "2"]],
        [[1, 4, 2.0]],
        [[1, True, 2]],
        [[1, 10**30, 2]],
        [[0, 4, 2]],
        [1, 4, 2],
        {"1": 4},
    ),
    "rejection_sample_method": ("standard", "block", "synthetic", "Block"),
    "synthetic_acceptance_length": (1, 2.5, 4, 4.5),
    "speculative_token_tree": (
        [[0], [0, 0], [1]],
        "[(0,), (0, 0), (1,)]",
        [[0], [1], [1, 0], [2]],
        "[(0,), (1, 0), (0,)]",
        "(0,",
        [[0], [-1], [1.5]],
    ),
    "draft_sample_method": ("greedy", "probabilistic", "Greedy"),
    "prompt_lookup_min": (4, 5, 2**20, 2**20 + 1),
    "prompt_lookup_max": (2, 2**20, 2**20 + 1, 2**63),
    "max_model_len": (64, 2048, 2049, 10**6),
    "draft_tensor_parallel_size": (2,),
    "quantization": ("fp8", "gptq", "FP8"),
    "kv_cache_dtype": ("auto", "fp8", "FP8"),
    "attention_backend": ("auto", "CPU_ATTN", "cpu_attn", "FLASH_ATTN"),
    "draft_load_config": (
        {"load_format": "auto"},
        {"load_format": "bogus"},
        {"load_format": 3},
        {"use_tqdm_on_load": False},
    ),
    "capture": ("planned", "stock", "all"),
    "capture_graphs": (12, 10**9, 2.0),
    "capture_load": ("uniform", "zipf", "normal:4,2", "normal:4", "normal:4,-2", "/no/such/file"),
    "collect_folder": ("/no/such/folder", "", 3, None),
    "collect_max_bytes": (10**6, 0, 1.5),
    "collect_rate": (0.1, 1, 0, 2),
    "collect_what": ("tokens", "text", "all"),
    "draft_length": ("fixed", "adaptive", "Adaptive"),
    "draft_lengths": ([0, 1], [0, 0], [0, 1.0], [5, "x"], [-1], [10**30]),
    "draft_loop": ("auto", "stock", "ours", "fused"),
    "draft_window": (64, 2047, 2048, "auto", "64", 0, None),
    "spec_page": (True, False, 1),
    "tree": (3, "3x1", "1x3", 8, 64, "9x9", "5by3", "0x3", True, None),
    "verify_backend": ("reference", "abacus"),
    "verify_rule": ("token", "block", "seeded", "Token"),
}
UNKNOWN = ("frobnicate", "num_speculative_token", "speculative_model", "", "a" * 300, "two\nlines")
SYNTHETIC = {"rejection_sample_method": "synthetic"}
RATES: tuple[Any, ...] = (
    [1, 0.5, 0.25],
    [1, 0.5],
    [0.5, 1, 0.25],
    [1, 0.5, NAN],
    [1, 0.5, -0.1],
    [True, 0.5, 0.25],
    ["1", 0.5, 0.25],
    {"0": 1},
)
MISSPELT = (
    "ascend-spec",
    "ascendspec",
    "AscendSpec",
    "ASCEND_SPEC",
    "ascend spec",
    "ascend.spec",
    "ascend_specs",
    "ascend_spce",
    "acsend_spec",
    "asced_spec",
    "vllm_ascend_spec",
    "vllm-ascend-spec",
)


@dataclass(frozen=True)
class Case:
    """One configuration; ``option`` is what is tried in it."""

    option: str
    spec: Any
    additional: Any = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.option}: {self.spec!r:.300} {self.additional!r:.300}"


def cases() -> Iterator[Case]:
    """Make every case."""
    for method, spec in SPECS.items():
        yield Case("nothing", spec)
        yield from _options(method, spec)
        yield from _combinations(spec)
    yield from _sections(SPECS["eagle"])
    yield from _whole_configs(SPECS["ngram"])


def _options(method: str, spec: dict[str, Any]) -> Iterator[Case]:
    own = METHODS[method].options
    for key in OPTIONS:
        name = f"speculative_config.{key}"
        values = VALUES + MORE.get(key, ()) if key in own else (None, False, 1, "bogus")
        for value in values:
            yield Case(name, {**spec, key: value})
        if key in own:
            yield Case(name, {other: spec[other] for other in spec if other != key})
    for key in (*ABSENT, *INTERNAL, *UNKNOWN):
        for value in (None, False, 1, {"a": 1}, ABSENT.get(key, (None,))[0]):
            yield Case(f"speculative_config.{key}", {**spec, key: value})


def _combinations(spec: dict[str, Any]) -> Iterator[Case]:
    for rates in RATES:
        yield Case("rates", {**spec, **SYNTHETIC, "synthetic_acceptance_rates": rates})
    for length in (0.5, 1, 3.5, 9, NAN):
        yield Case("length", {**spec, **SYNTHETIC, "synthetic_acceptance_length": length})
    yield Case("twice", {**spec, "num-speculative-tokens": 2})
    yield Case("dashes", {key.replace("_", "-"): value for key, value in spec.items()})


def _sections(spec: dict[str, Any]) -> Iterator[Case]:
    for key in CHECKS:
        for value in VALUES + MORE[key]:
            yield Case(key, spec, {"ascend_spec": {key: value}})
    for value in VALUES:
        yield Case("section", spec, {"ascend_spec": value})
    for key in UNKNOWN:
        yield Case("unknown", spec, {"ascend_spec": {key: 1}})
        yield Case("other people's", spec, {key: {"x": 1}})
    for key in MISSPELT:
        yield Case("misspelt", spec, {key: {"verify_rule": "block"}})


def _whole_configs(spec: dict[str, Any]) -> Iterator[Case]:
    for value in VALUES:
        yield Case("speculative_config", value)
        yield Case("additional_config", spec, value)
        yield Case("additional_config", None, value)
