"""Healthy checkpoints that are not as transformers writes them; vLLM loads every one."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

from tests.config.checkpoints import Entry, edit_config, edit_tensors, write_config, zeros
from tests.config.damage import find, shard

Change = Callable[[Path], object]
JOINED = {
    "self_attn.qkv_proj.weight": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
    "mlp.gate_up_proj.weight": ["mlp.gate_proj", "mlp.up_proj"],
}


def with_entries(*named: tuple[str, list[int], str]) -> Change:
    """Add tensors of zeros; ``named`` are name, shape and dtype."""
    extra = {name: zeros(shape, dtype) for name, shape, dtype in named}
    return lambda folder: edit_tensors(folder, lambda entries: entries.update(extra))


def zero_bias(folder: Path) -> None:
    """Give each projection a bias of zeros, as quantization tools do."""

    def change(entries: dict[str, Entry]) -> None:
        for name in [name for name in entries if name.endswith("_proj.weight")]:
            bias = name.removesuffix("weight") + "bias"
            entries[bias] = zeros(entries[name].shape[:1], entries[name].dtype)

    edit_tensors(folder, change)


def rotary_buffers(folder: Path) -> None:
    """Add the buffers that early versions of transformers saved."""

    def change(entries: dict[str, Entry]) -> None:
        stem = find(entries, "q_proj.weight").removesuffix("q_proj.weight")
        for name in ("inv_freq", "cos_cached", "sin_cached"):
            entries[f"{stem}rotary_emb.{name}"] = zeros([2])

    edit_tensors(folder, change)


def join(folder: Path) -> None:
    """Join q, k and v, and gate and up."""

    def change(entries: dict[str, Entry]) -> None:
        for whole, parts in JOINED.items():
            for first in [name for name in entries if name.endswith(f"{parts[0]}.weight")]:
                stem = first.removesuffix(f"{parts[0]}.weight")
                own = [entries.pop(f"{stem}{part}.weight") for part in parts]
                shape = [sum(entry.shape[0] for entry in own), *own[0].shape[1:]]
                body = b"".join(entry.body for entry in own)
                entries[stem + whole] = Entry(own[0].dtype, shape, body)

    edit_tensors(folder, change)


def without_embedding(folder: Path) -> None:
    edit_tensors(folder, lambda entries: entries.pop(find(entries, "embed_tokens.weight")))


def with_head(folder: Path) -> None:
    """Add an output layer that is the embedding once more."""
    edit_tensors(
        folder,
        lambda entries: entries.update(
            {"lm_head.weight": entries[find(entries, "embed_tokens.weight")]}
        ),
    )


def untie(folder: Path) -> None:
    with_head(folder)
    edit_config(folder, tie_word_embeddings=False)


def shard_without_index(folder: Path) -> None:
    shard(folder, 3)
    (folder / "model.safetensors.index.json").unlink()


def wrap(folder: Path) -> None:
    """Save an EAGLE head's config as vLLM's EAGLEConfig does."""
    inner = json.loads((folder / "config.json").read_text())
    outer = {"model_type": "eagle", "architectures": ["EagleLlamaForCausalLM"], "model": inner}
    write_config(folder, outer)


def pickled_emulator(folder: Path) -> None:
    (folder / "pytorch_model.bin").touch()


def beside(name: str, text: str = "{}") -> Change:
    return lambda folder: (folder / name).write_text(text)


def in_order(*changes: Change) -> Change:
    def apply(folder: Path) -> None:
        for change in changes:
            change(folder)

    return apply


BOTH: dict[str, Change] = {
    "as it is": lambda folder: None,
    "sharded": shard,
    "sharded without an index": shard_without_index,
    "biases of zeros": zero_bias,
    "rotary buffers": rotary_buffers,
    "joined projections": join,
    "joined and sharded": in_order(join, shard),
    "pickled emulator": pickled_emulator,
    "no head_dim": lambda folder: edit_config(folder, head_dim=None),
    "head_dim 0": lambda folder: edit_config(folder, head_dim=0),
    "rope_theta null": lambda folder: write_config(
        folder, json.loads((folder / "config.json").read_text()) | {"rope_theta": None}
    ),
    "no epsilon": lambda folder: edit_config(folder, rms_norm_eps=None),
    "no positions": lambda folder: edit_config(folder, max_position_embeddings=None),
    "torch_dtype": lambda folder: edit_config(folder, dtype=None, torch_dtype="bfloat16"),
    "rope of its own": lambda folder: edit_config(
        folder, rope_theta=500000, rope_scaling={"rope_type": "llama3", "factor": 8.0}
    ),
}
EAGLE: dict[str, Change] = {
    "no embedding": without_embedding,
    "wrapped config": wrap,
    "named after vLLM's class": lambda folder: edit_config(
        folder, architectures=["EagleLlamaForCausalLM"]
    ),
    "untied without a head": lambda folder: edit_config(folder, tie_word_embeddings=False),
}
DRAFT_MODEL: dict[str, Change] = {
    "untied": untie,
    "tied with a head": with_head,
    "no architectures": lambda folder: edit_config(folder, architectures=None),
    "LLaMA as it once was": lambda folder: edit_config(folder, architectures=["LLaMAForCausalLM"]),
}


def quantize(kind: str) -> Change:
    """Rename and retype the projections as a quantization tool does."""

    def change(entries: dict[str, Entry]) -> None:
        for name in [name for name in entries if name.endswith("_proj.weight")]:
            rows, columns = entries.pop(name).shape
            stem = name.removesuffix("weight")
            for extra, shape, dtype in QUANTIZED[kind][0](rows, columns):
                entries[stem + extra] = zeros(shape, dtype)

    return lambda folder: (edit_tensors(folder, change), QUANTIZED[kind][1](folder))


def _config(method: str) -> Change:
    return lambda folder: edit_config(folder, quantization_config={"quant_method": method})


def _packed(size: int) -> int:
    return math.ceil(size / 8)


Tensors = Callable[[int, int], list[tuple[str, list[int], str]]]
QUANTIZED: dict[str, tuple[Tensors, Change]] = {
    "fp8": (
        lambda rows, columns: [
            ("weight", [rows, columns], "F8_E4M3"),
            ("weight_scale", [], "F32"),
            ("input_scale", [], "F32"),
        ],
        _config("fp8"),
    ),
    "compressed-tensors int8": (
        lambda rows, columns: [
            ("weight", [rows, columns], "I8"),
            ("weight_scale", [rows, 1], "BF16"),
        ],
        _config("compressed-tensors"),
    ),
    "compressed-tensors packed": (
        lambda rows, columns: [
            ("weight_packed", [rows, _packed(columns)], "I32"),
            ("weight_scale", [rows, 1], "BF16"),
            ("weight_shape", [2], "I64"),
        ],
        _config("compressed-tensors"),
    ),
    "gptq": (
        lambda rows, columns: [
            ("qweight", [_packed(columns), rows], "I32"),
            ("qzeros", [1, _packed(rows)], "I32"),
            ("scales", [1, rows], "F16"),
            ("g_idx", [columns], "I32"),
            ("bias", [rows], "F16"),
        ],
        beside("quantize_config.json"),
    ),
    "awq": (
        lambda rows, columns: [
            ("qweight", [columns, _packed(rows)], "I32"),
            ("qzeros", [1, _packed(rows)], "I32"),
            ("scales", [1, rows], "F16"),
        ],
        _config("awq"),
    ),
    "bitsandbytes": (
        lambda rows, columns: [
            ("weight", [rows * columns // 2, 1], "U8"),
            ("weight.absmax", [1], "U8"),
            ("weight.quant_state.bitsandbytes__nf4", [8], "U8"),
        ],
        _config("bitsandbytes"),
    ),
    "ModelSlim": (
        lambda rows, columns: [
            ("weight", [rows, columns], "I8"),
            ("deq_scale", [rows], "I64"),
            ("quant_bias", [rows], "I32"),
            ("input_scale", [1], "BF16"),
            ("input_offset", [1], "BF16"),
        ],
        beside("quant_model_description.json", '{"model_quant_type": "W8A8"}'),
    ),
}
