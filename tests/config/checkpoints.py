"""Tiny checkpoints on disk, written byte by byte so that tests can damage them anywhere."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HIDDEN, VOCAB, INNER = 4, 16, 6
WEIGHTS = "model.safetensors"
ITEMSIZE = {"F32": 4, "BF16": 2, "F16": 2, "F64": 8, "I8": 1, "BOOL": 1, "I64": 8, "I32": 4}
LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": VOCAB,
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
}
# Entries of an EAGLE-3 head that the speculators library keeps beside the decoder's.
HEAD_SETTINGS = (
    "draft_vocab_size",
    "target_hidden_size",
    "norm_before_residual",
    "norm_before_fc",
    "fc_norm",
    "norm_output",
)


@dataclass
class Entry:
    """A tensor as it is on disk."""

    dtype: str
    shape: list[int]
    body: bytes


def zeros(shape: list[int], dtype: str = "F32") -> Entry:
    return Entry(dtype, shape, bytes(math.prod(shape) * ITEMSIZE.get(dtype, 1)))


def layer_shapes(config: Mapping[str, Any]) -> dict[str, list[int]]:
    """Return the tensors of a layer of Llama, as transformers saves them."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    heads = config["num_attention_heads"]
    size = config.get("head_dim") or hidden // heads
    queries, keys = heads * size, (config.get("num_key_value_heads") or heads) * size
    return {
        "input_layernorm.weight": [hidden],
        "mlp.down_proj.weight": [hidden, inner],
        "mlp.gate_proj.weight": [inner, hidden],
        "mlp.up_proj.weight": [inner, hidden],
        "post_attention_layernorm.weight": [hidden],
        "self_attn.k_proj.weight": [keys, hidden],
        "self_attn.o_proj.weight": [hidden, queries],
        "self_attn.q_proj.weight": [queries, hidden],
        "self_attn.v_proj.weight": [keys, hidden],
    }


def llama_shapes(config: Mapping[str, Any]) -> dict[str, list[int]]:
    """Return the tensors of a Llama with tied embeddings."""
    hidden = config["hidden_size"]
    shapes = {"model.embed_tokens.weight": [config["vocab_size"], hidden]}
    for layer in range(config["num_hidden_layers"]):
        for name, shape in layer_shapes(config).items():
            shapes[f"model.layers.{layer}.{name}"] = shape
    return {**shapes, "model.norm.weight": [hidden]}


def eagle_shapes(config: Mapping[str, Any]) -> dict[str, list[int]]:
    """Return the tensors of an EAGLE head with an embedding of its own."""
    hidden = config["hidden_size"]
    shapes = {"embed_tokens.weight": [config["vocab_size"], hidden]}
    shapes["fc.weight"] = [hidden, 2 * hidden]
    for layer in range(config["num_hidden_layers"]):
        for name, shape in layer_shapes(config).items():
            if layer or name != "input_layernorm.weight":
                shapes[f"layers.{layer}.{name}"] = shape
    return shapes


def eagle3_shapes(config: Mapping[str, Any], first: str = "layers.0.") -> dict[str, list[int]]:
    """Return the tensors of an EAGLE-3 head with embedding and output layer of its own.

    Args:
        config: of the head.
        first: what the names in its first layer begin with.
    """
    hidden, vocab = config["hidden_size"], config["vocab_size"]
    drafts, states = config.get("draft_vocab_size") or vocab, config.get("num_aux_hidden_states", 3)
    width = config.get("target_hidden_size") or hidden
    shapes = {"embed_tokens.weight": [vocab, hidden], "lm_head.weight": [drafts, hidden]}
    shapes |= {"norm.weight": [hidden], "fc.weight": [hidden, states * width]}
    for layer in range(config["num_hidden_layers"]):
        own = layer_shapes(config) | {"hidden_norm.weight": [hidden]}
        for name, shape in own.items():
            wide = layer == 0 and name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight"))
            stem = first if layer == 0 else f"layers.{layer}."
            shapes[f"{stem}{name}"] = [shape[0], 2 * hidden] if wide else shape
    return shapes


def write_config(folder: Path, config: Mapping[str, Any]) -> None:
    (folder / "config.json").write_text(json.dumps(config))


def edit_config(folder: Path, **changes: Any) -> Path:
    """Change entries of ``config.json``; None takes one away."""
    config = json.loads((folder / "config.json").read_text()) | changes
    write_config(folder, {key: value for key, value in config.items() if value is not None})
    return folder


def write_file(path: Path, header: Mapping[str, Any] | str | bytes, body: bytes = b"") -> None:
    """Write eight bytes of length, a header and a body."""
    if isinstance(header, Mapping):
        header = json.dumps(header)
    content = header.encode() if isinstance(header, str) else header
    path.write_bytes(len(content).to_bytes(8, "little") + content + body)


def read_file(path: Path) -> tuple[dict[str, Any], bytes]:
    """Return header and body."""
    content = path.read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    return json.loads(content[8:end]), content[end:]


def write_tensors(path: Path, entries: Mapping[str, Entry]) -> None:
    """Write a healthy file."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    body = b""
    for name, entry in entries.items():
        offsets = [len(body), len(body) + len(entry.body)]
        header[name] = {"dtype": entry.dtype, "shape": entry.shape, "data_offsets": offsets}
        body += entry.body
    write_file(path, header, body)


def read_tensors(path: Path) -> dict[str, Entry]:
    """Return what a healthy file holds."""
    header, body = read_file(path)
    header.pop("__metadata__", None)
    return {
        name: Entry(entry["dtype"], entry["shape"], body[slice(*entry["data_offsets"])])
        for name, entry in header.items()
    }


def edit_tensors(folder: Path, change: Callable[[dict[str, Entry]], None]) -> Path:
    """Change the tensors of ``model.safetensors`` and write the file anew, healthy in itself."""
    entries = read_tensors(folder / WEIGHTS)
    change(entries)
    write_tensors(folder / WEIGHTS, entries)
    return folder


def edit_header(folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """Change the header of ``model.safetensors`` and leave the body as it is."""
    header, body = read_file(folder / WEIGHTS)
    change(header)
    write_file(folder / WEIGHTS, header, body)
    return folder


def write_checkpoint(
    folder: Path, shapes: dict[str, list[int]] | None = None, dtype: str = "F32", **config: Any
) -> Path:
    """Write a Llama, or tensors of ``shapes``; entries of ``config`` that are None are left out."""
    folder.mkdir(parents=True)
    entries = {key: value for key, value in (LLAMA | config).items() if value is not None}
    write_config(folder, entries)
    shapes = llama_shapes(entries) if shapes is None else shapes
    if shapes:
        tensors = {name: zeros(shape, dtype) for name, shape in shapes.items()}
        write_tensors(folder / WEIGHTS, tensors)
    return folder


def write_eagle(folder: Path, dtype: str = "F32", **config: Any) -> Path:
    """Write an EAGLE head."""
    return write_checkpoint(folder, eagle_shapes(LLAMA | config), dtype, **config)


def write_eagle3(folder: Path, dtype: str = "F32", **config: Any) -> Path:
    """Write an EAGLE-3 head; with ``draft_vocab_size`` it knows every second token."""
    write_checkpoint(folder, eagle3_shapes(LLAMA | config), dtype, **config)
    if (drafts := config.get("draft_vocab_size")) is not None:
        offsets = b"".join(number.to_bytes(8, "little") for number in range(drafts))
        edit_tensors(folder, lambda e: e.update(d2t=Entry("I64", [drafts], offsets)))
    return folder


def to_speculators(folder: Path, target: str, num_drafts: int = 3) -> Path:
    """Rewrite an EAGLE-3 head's config as the speculators library writes it.

    Args:
        folder: of the head.
        target: what it drafts for.
        num_drafts: how many drafts it proposes.
    """
    decoder = json.loads((folder / "config.json").read_text())
    head = {key: decoder.pop(key) for key in HEAD_SETTINGS if key in decoder}
    ids = (decoder.pop("eagle_config", None) or {}).get("eagle_aux_hidden_state_layer_ids")
    proposal = {"proposal_type": "greedy", "speculative_tokens": num_drafts}
    write_config(
        folder,
        {
            "architectures": ["Eagle3Speculator"],
            "speculators_model_type": "eagle3",
            "speculators_version": "0.9.0",
            "speculators_config": {
                "algorithm": "eagle3",
                "default_proposal_method": "greedy",
                "proposal_methods": [proposal],
                "verifier": {"name_or_path": target, "architectures": ["LlamaForCausalLM"]},
            },
            "transformer_layer_config": decoder,
            # The library's own default is the other way round.
            "norm_before_residual": False,
            "eagle_aux_hidden_state_layer_ids": ids,
            **head,
        },
    )
    return folder
