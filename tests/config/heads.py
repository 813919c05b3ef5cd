"""Tiny checkpoints of heads on disk, zeros unless told otherwise."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any

from tests.config.checkpoints import (
    HIDDEN,
    VOCAB,
    WEIGHTS,
    Entry,
    edit_tensors,
    write_checkpoint,
    write_tensors,
    zeros,
)

INNER = 3
MEDUSA: dict[str, Any] = {
    "architectures": ["MedusaModel"],
    "model_type": "medusa",
    "num_heads": 2,
    "num_hidden_layers": 2,
    "original_lm_head": True,
}
MLP: dict[str, Any] = {
    "architectures": ["MLPSpeculatorPreTrainedModel"],
    "model_type": "mlp_speculator",
    "emb_dim": HIDDEN,
    "inner_dim": INNER,
    "n_predict": 3,
    "tie_weights": False,
    "scale_input": True,
}
# What write_checkpoint() adds of a Llama.
NO_LLAMA: dict[str, Any] = dict.fromkeys(
    (
        "intermediate_size",
        "num_attention_heads",
        "num_key_value_heads",
        "hidden_act",
        "tie_word_embeddings",
    )
)


def medusa_shapes(config: dict[str, Any], rows: int = VOCAB) -> dict[str, list[int]]:
    """Return the tensors of Medusa's heads, as vLLM names them."""
    shapes = {}
    for head in range(config["num_heads"]):
        for layer in range(config["num_hidden_layers"]):
            shapes[f"blocks.{head}.layers.{layer}.weight"] = [HIDDEN, HIDDEN]
        if not config["original_lm_head"]:
            shapes[f"lm_heads.{head}.weight"] = [rows, HIDDEN]
    if config["original_lm_head"]:
        shapes["lm_head.weight"] = [rows, HIDDEN]
    return shapes


def write_medusa(
    folder: Path, shapes: dict[str, list[int]] | None = None, dtype: str = "F32", **config: Any
) -> Path:
    """Write Medusa's heads."""
    given = NO_LLAMA | MEDUSA | config
    shapes = medusa_shapes(given) if shapes is None else shapes
    return write_checkpoint(folder, shapes, dtype, **given)


def token_map(tokens: list[int], dtype: str = "I64") -> Entry:
    content = array({"I64": "q", "I32": "i", "F32": "f"}[dtype], tokens)
    return Entry(dtype, [len(tokens)], content.tobytes())


def truncated(folder: Path, tokens: list[int], rows: int, **config: Any) -> Path:
    """Write heads that draft some tokens only."""
    config = {"truncated_vocab_size": 4, **config}
    write_medusa(folder, medusa_shapes(MEDUSA | config, rows), **config)
    return edit_tensors(folder, lambda entries: entries.update(token_map=token_map(tokens)))


def faster_decoding(folder: Path, biases: bool = True) -> Path:
    """Write heads as FasterDecoding's own code does, which leaves out what is the target's."""
    folder.mkdir()
    (folder / "config.json").write_text(
        '{"medusa_num_heads": 2, "medusa_num_layers": 1, "base_model_name_or_path": "a/b"}'
    )
    entries = {}
    for head in range(2):
        entries[f"{head}.0.linear.weight"] = zeros([HIDDEN, HIDDEN])
        if biases:
            entries[f"{head}.0.linear.bias"] = zeros([HIDDEN])
        entries[f"{head}.1.weight"] = zeros([VOCAB, HIDDEN])
    write_tensors(folder / WEIGHTS, entries)
    return folder


def mlp_shapes(config: dict[str, Any]) -> dict[str, list[int]]:
    """Return the tensors of an MLP speculator, those of tied stages once for each stage."""
    inner = config["inner_dim"] or HIDDEN
    shapes = {}
    for stage in range(config["n_predict"]):
        shapes[f"speculator.emb.{stage}.weight"] = [VOCAB, inner]
        shapes[f"speculator.proj.{stage}.weight"] = [inner, inner if stage else HIDDEN]
        shapes[f"speculator.head.{stage}.weight"] = [VOCAB, inner]
        shapes[f"speculator.ln.{stage}.weight"] = [inner]
        shapes[f"speculator.ln.{stage}.bias"] = [inner]
    return shapes


def write_mlp(
    folder: Path, shapes: dict[str, list[int]] | None = None, dtype: str = "F32", **config: Any
) -> Path:
    """Write an MLP speculator."""
    given = NO_LLAMA | MLP | {"hidden_size": None, "num_hidden_layers": None} | config
    shapes = mlp_shapes(given) if shapes is None else shapes
    return write_checkpoint(folder, shapes, dtype, **given)
