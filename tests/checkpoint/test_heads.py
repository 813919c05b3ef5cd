"""Checkpoints of heads: which are taken, and what is said of those that are not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.config.checkpoints import (
    HIDDEN,
    VOCAB,
    WEIGHTS,
    Entry,
    edit_config,
    edit_tensors,
    write_checkpoint,
    write_eagle,
    zeros,
)
from tests.config.damage import shard
from tests.config.heads import (
    faster_decoding,
    token_map,
    truncated,
    write_medusa,
    write_mlp,
)
from vllm_ascend_spec.config.engine import EngineOptions
from vllm_ascend_spec.errors import CheckpointError, ConfigError
from vllm_ascend_spec.hooks.preflight import resolve_engine

Write = Callable[..., Path]
WRITERS: dict[str, Write] = {"medusa": write_medusa, "mlp_speculator": write_mlp}


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "target")


def check(method: str, folder: Path, target: Path | str, **options: Any) -> None:
    """Check as an engine does before it loads anything."""
    spec = {"method": method, "model": str(folder), "num_speculative_tokens": 2, **options}
    resolve_engine(str(target), spec)


def rename(folder: Path, change: Callable[[str], str]) -> Path:
    def apply(entries: dict[str, Entry]) -> None:
        for name in list(entries):
            entries[change(name)] = entries.pop(name)

    return edit_tensors(folder, apply)


def only(folder: Path, *kept: str) -> Path:
    """Leave tensors out."""

    def apply(entries: dict[str, Entry]) -> None:
        for name in set(entries) - set(kept):
            del entries[name]

    return edit_tensors(folder, apply)


def sharded(folder: Path) -> Path:
    shard(folder)
    return folder


TIED = {"tie_weights": True}
LAST = [
    *(f"speculator.{part}.2.weight" for part in ("emb", "proj", "head", "ln")),
    "speculator.proj.0.weight",
    "speculator.ln.2.bias",
]
HEALTHY: dict[str, tuple[str, Callable[[Path], Path]]] = {
    "medusa": ("medusa", write_medusa),
    "medusa, bfloat16": ("medusa", lambda f: write_medusa(f, dtype="BF16")),
    "medusa, output layers of each": ("medusa", lambda f: write_medusa(f, original_lm_head=False)),
    "medusa, FasterDecoding": ("medusa", faster_decoding),
    "medusa, FasterDecoding without biases": ("medusa", lambda f: faster_decoding(f, False)),
    "medusa, FasterDecoding's other prefix": (
        "medusa",
        lambda f: rename(faster_decoding(f), lambda name: f"medusa_heads.{name}"),
    ),
    "medusa, some tokens": ("medusa", lambda f: truncated(f, [3, 1, 15, 0], rows=4)),
    "medusa, some tokens of a whole layer": (
        "medusa",
        lambda f: truncated(f, [3, 1, 15, 0], rows=VOCAB),
    ),
    "medusa, sharded": ("medusa", lambda f: sharded(write_medusa(f))),
    "mlp": ("mlp_speculator", write_mlp),
    "mlp, its own prefix left out": (
        "mlp_speculator",
        lambda f: rename(write_mlp(f), lambda name: name.removeprefix("speculator.")),
    ),
    "mlp, as wide as the target": ("mlp_speculator", lambda f: write_mlp(f, inner_dim=0)),
    "mlp, tied, every name": ("mlp_speculator", lambda f: write_mlp(f, **TIED)),
    "mlp, tied, last names": ("mlp_speculator", lambda f: only(write_mlp(f, **TIED), *LAST)),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_ones_are_taken(name: str, tmp_path: Path, target: Path) -> None:
    method, write = HEALTHY[name]
    folder = write(tmp_path / "draft")
    check(method, folder, target)
    check(method, folder, "org/target-of-a-hub")


def drop(*names: str) -> Callable[[Path], Path]:
    return lambda folder: edit_tensors(folder, lambda e: [e.pop(name) for name in names])


def add(name: str, entry: Entry) -> Callable[[Path], Path]:
    return lambda folder: edit_tensors(folder, lambda e: e.update({name: entry}))


def config(**changes: Any) -> Callable[[Path], Path]:
    return lambda folder: edit_config(folder, **changes)


def pickled(folder: Path) -> Path:
    (folder / WEIGHTS).rename(folder / "medusa_lm_head.pt")
    return folder


OF_MEDUSA: dict[str, tuple[Callable[[Path], Path], str]] = {
    "a missing layer": (drop("blocks.1.layers.1.weight"), "no tensor blocks.1.layers.1.weight"),
    "a missing head": (
        drop("blocks.1.layers.0.weight", "blocks.1.layers.1.weight"),
        r"has 1 layer \(blocks.\*\), num_heads in config.json is 2",
    ),
    "no output layer": (drop("lm_head.weight"), "no tensor lm_head.weight"),
    "another tensor": (add("norm.weight", zeros([HIDDEN])), "norm.weight .* unexpected"),
    "a wrong width": (
        add("blocks.0.layers.0.weight", zeros([HIDDEN, 5])),
        r"blocks.0.layers.0.weight .* is \[4, 5\]; valid: \[4, 4\]",
    ),
    "a wrong dtype": (add("lm_head.weight", zeros([VOCAB, HIDDEN], "I8")), "is I8; valid: BF16"),
    "another vocabulary": (config(vocab_size=15), "its vocab_size is 15, the target's is 16"),
    "another width": (config(hidden_size=8), "its hidden_size is 8, the target's is 4"),
    "no number of heads": (config(num_heads=None), "num_heads is missing"),
    "heads that are no number": (config(num_heads="2"), "num_heads is '2'"),
    "biases that are not there": (config(medusa_fc_bias=True), "no tensor blocks.0.layers.0.bias"),
    "too many tokens": (config(truncated_vocab_size=17), "truncated_vocab_size is 17; valid: up"),
    "no table of tokens": (config(truncated_vocab_size=4), "has no tensor token_map; valid: I64"),
    "a table for nothing": (add("token_map", token_map([1])), "token_map .* unexpected"),
    "quantized": (config(quantization_config={"quant_method": "fp8"}), "are quantized"),
    "pickled": (pickled, r"pickled \(medusa_lm_head.pt\)"),
}


@pytest.mark.parametrize("name", OF_MEDUSA)
def test_damaged_medusa(name: str, tmp_path: Path, target: Path) -> None:
    damage, problem = OF_MEDUSA[name]
    folder = damage(write_medusa(tmp_path / "draft"))
    with pytest.raises(CheckpointError, match=problem):
        check("medusa", folder, target)


OF_MLP: dict[str, tuple[Callable[[Path], Path], str]] = {
    "a missing embedding": (drop("speculator.emb.1.weight"), "no tensor emb.1.weight"),
    "a missing shift": (drop("speculator.ln.0.bias"), "no tensor ln.0.bias"),
    "a missing stage": (
        drop("speculator.head.2.weight"),
        r"has 2 layers \(head.\*\), n_predict in config.json is 3",
    ),
    "a stage too many": (
        config(n_predict=2),
        r"has 3 layers \(head.\*\), n_predict in config.json is 2",
    ),
    "another tensor": (add("speculator.cell_emb.0.weight", zeros([1])), "cell_emb.0.weight .* une"),
    "another width": (config(emb_dim=8), "its emb_dim is 8, the target's hidden_size is 4"),
    "another vocabulary": (config(vocab_size=15), "its vocab_size is 15, the target's is 16"),
    "a wrong inner width": (config(inner_dim=5), r"is \[16, 3\]; valid: \[16, 5\]"),
    "an inner width of another kind": (config(inner_dim="3-3"), "inner_dim is '3-3'"),
    "no number of stages": (config(n_predict=None), "n_predict is missing"),
    "ties of different sizes": (
        lambda f: edit_config(add("speculator.emb.1.weight", zeros([VOCAB, 7]))(f), **TIED),
        r"speculator.emb.1.weight is \[16, 7\] and speculator.emb.0.weight is \[16, 3\]",
    ),
}


@pytest.mark.parametrize("name", OF_MLP)
def test_damaged_mlp_speculator(name: str, tmp_path: Path, target: Path) -> None:
    damage, problem = OF_MLP[name]
    folder = damage(write_mlp(tmp_path / "draft"))
    with pytest.raises(CheckpointError, match=problem):
        check("mlp_speculator", folder, target)


@pytest.mark.parametrize(
    ("tokens", "problem"),
    [
        ([3, 1, 16, 0], "outside the vocabulary of 16, or a token twice"),
        ([3, 1, -1, 0], "outside the vocabulary of 16"),
        ([3, 1, 3, 0], "a token twice"),
        ([3, 1, 0], r"is I64, \[3\]; valid: I64 or I32, \[4\]"),
    ],
)
def test_damaged_table_of_tokens(
    tokens: list[int], problem: str, tmp_path: Path, target: Path
) -> None:
    folder = truncated(tmp_path / "draft", tokens, rows=4)
    with pytest.raises(CheckpointError, match=problem):
        check("medusa", folder, target)


@pytest.mark.parametrize("method", WRITERS)
class TestBoth:
    def test_other_drafts_are_told_which_method_they_are_for(
        self, method: str, tmp_path: Path, target: Path
    ) -> None:
        with pytest.raises(CheckpointError, match="use method 'eagle'"):
            check(method, write_eagle(tmp_path / "eagle"), target)
        with pytest.raises(CheckpointError, match="use method 'draft_model'"):
            check(method, target, target)

    def test_as_a_draft_model_they_are_told_their_method(
        self, method: str, tmp_path: Path, target: Path
    ) -> None:
        folder = WRITERS[method](tmp_path / "draft")
        with pytest.raises(CheckpointError, match=f"use method '{method}'"):
            check("draft_model", folder, target)

    def test_no_more_drafts_than_heads(self, method: str, tmp_path: Path, target: Path) -> None:
        folder = WRITERS[method](tmp_path / "draft")
        with pytest.raises(ConfigError, match=r"valid: up to \d, the number of heads") as raised:
            check(method, folder, target, num_speculative_tokens=4)
        assert raised.value.option == "speculative_config.num_speculative_tokens"

    def test_heads_are_not_split(self, method: str, tmp_path: Path, target: Path) -> None:
        folder = WRITERS[method](tmp_path / "draft")
        check(method, folder, target, draft_tensor_parallel_size=1)
        spec = {
            "method": method,
            "model": str(folder),
            "num_speculative_tokens": 2,
            "draft_tensor_parallel_size": 2,
        }
        with pytest.raises(ConfigError, match=r"valid: 1; .* each device has all"):
            resolve_engine(str(target), spec, engine=EngineOptions(tensor_parallel_size=2))

    @pytest.mark.parametrize(
        ("option", "value"),
        [
            ("enforce_eager", True),
            ("quantization", "fp8"),
            ("max_model_len", 100),
            ("draft_load_config", {"load_format": "auto"}),
            ("disable_padded_drafter_batch", True),
        ],
    )
    def test_options_of_other_drafts_are_refused_by_name(
        self, method: str, option: str, value: Any, tmp_path: Path, target: Path
    ) -> None:
        folder = WRITERS[method](tmp_path / "draft")
        with pytest.raises(ConfigError, match=f"with method '{method}'") as raised:
            check(method, folder, target, **{option: value})
        assert raised.value.option == f"speculative_config.{option}"

    def test_vllm_is_given_a_method_that_it_keeps(
        self, method: str, tmp_path: Path, target: Path
    ) -> None:
        folder = WRITERS[method](tmp_path / "draft")
        spec = {"method": method, "model": str(folder), "num_speculative_tokens": 2}
        found = resolve_engine(str(target), spec)
        assert found is not None
        assert (found.method, found.vllm_method) == (method, "custom_class")
