"""Ways to damage a draft's checkpoint, and what the message has to name."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.config.checkpoints import (
    WEIGHTS,
    Entry,
    edit_config,
    edit_header,
    edit_tensors,
    read_file,
    read_tensors,
    write_file,
    write_tensors,
    zeros,
)

Damage = Callable[[Path], Any]
Table = dict[str, tuple[Damage, list[str]]]

LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a21\nsize 12345\n"


def weights(content: bytes) -> Damage:
    """Replace the weights' file."""
    return lambda folder: (folder / WEIGHTS).write_bytes(content)


def cut(count: int) -> Damage:
    """Take bytes off the end."""
    return lambda folder: os.truncate(folder / WEIGHTS, os.stat(folder / WEIGHTS).st_size - count)


def padded(folder: Path) -> None:
    with (folder / WEIGHTS).open("ab") as file:
        file.write(bytes(8))


def header(change: Callable[[dict[str, Any]], Any]) -> Damage:
    return lambda folder: edit_header(folder, change)


def of(name: str, **changes: Any) -> Damage:
    """Change what the header says of one tensor."""
    return header(lambda entries: entries[find(entries, name)].update(changes))


def find(entries: dict[str, Any], name: str) -> str:
    """Return the first name that ends so."""
    return next(key for key in entries if key.endswith(name))


def config(**changes: Any) -> Damage:
    return lambda folder: edit_config(folder, **changes)


def without(*names: str) -> Damage:
    def drop(entries: dict[str, Entry]) -> None:
        for name in names:
            del entries[find(entries, name)]

    return lambda folder: edit_tensors(folder, drop)


def cast(name: str, dtype: str) -> Damage:
    def change(entries: dict[str, Entry]) -> None:
        key = find(entries, name)
        entries[key] = zeros(entries[key].shape, dtype)

    return lambda folder: edit_tensors(folder, change)


def reshaped(name: str, change: Callable[[list[int]], list[int]]) -> Damage:
    def apply(entries: dict[str, Entry]) -> None:
        key = find(entries, name)
        entries[key] = zeros(change(entries[key].shape), entries[key].dtype)

    return lambda folder: edit_tensors(folder, apply)


def added(name: str, like: str) -> Damage:
    """Add a tensor that is a copy of another."""
    return lambda folder: edit_tensors(
        folder, lambda entries: entries.update({name: entries[find(entries, like)]})
    )


def renamed(change: Callable[[str], str]) -> Damage:
    def apply(entries: dict[str, Entry]) -> None:
        for name in list(entries):
            entries[change(name)] = entries.pop(name)

    return lambda folder: edit_tensors(folder, apply)


def swapped(folder: Path) -> None:
    """Let two tensors of a header share their bytes."""

    def change(entries: dict[str, Any]) -> None:
        first, second = (
            entries[find(entries, "k_proj.weight")],
            entries[find(entries, "v_proj.weight")],
        )
        second["data_offsets"] = first["data_offsets"]

    edit_header(folder, change)


def twice(folder: Path) -> None:
    """Name a tensor twice in one header."""
    entries, body = read_file(folder / WEIGHTS)
    name = find(entries, "o_proj.weight")
    text = json.dumps(entries)
    write_file(
        folder / WEIGHTS, f"{text[:-1]}, {json.dumps(name)}: {json.dumps(entries[name])}}}", body
    )


def replaced(make: Callable[[Path], Any], name: str = WEIGHTS) -> Damage:
    """Put something else in a file's place."""

    def apply(folder: Path) -> None:
        (folder / name).unlink()
        make(folder / name)

    return apply


def shard(folder: Path, parts: int = 2) -> dict[str, str]:
    """Split ``model.safetensors`` as transformers does, and return the index's ``weight_map``."""
    entries = read_tensors(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    names, placed = list(entries), {}
    for part in range(parts):
        path = folder / f"model-{part + 1:05}-of-{parts:05}.safetensors"
        own = names[part::parts]
        write_tensors(path, {name: entries[name] for name in own})
        placed.update(dict.fromkeys(own, path.name))
    write_index(folder, {"metadata": {}, "weight_map": placed})
    return placed


def write_index(folder: Path, content: Any) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps(content))


def index(change: Callable[[Path, dict[str, str]], Any]) -> Damage:
    """Shard, then damage with the weight map in hand."""
    return lambda folder: change(folder, shard(folder))


def moved(folder: Path, placed: dict[str, str]) -> None:
    """Say of a tensor that it is in the other file."""
    name = find(placed, "o_proj.weight")
    other = next(file for file in placed.values() if file != placed[name])
    write_index(folder, {"weight_map": {**placed, name: other}})


def in_both(folder: Path, placed: dict[str, str]) -> None:
    """Put a tensor of the first file into the second one, too."""
    first, second = sorted(set(placed.values()))
    name = next(name for name in placed if placed[name] == first)
    entries = read_tensors(folder / second)
    entries[name] = read_tensors(folder / first)[name]
    write_tensors(folder / second, entries)


def without_index(folder: Path, placed: dict[str, str]) -> None:
    """Leave the second file and the index away."""
    (folder / "model.safetensors.index.json").unlink()
    (folder / max(placed.values())).unlink()


FILES: Table = {
    "empty": (weights(b""), [WEIGHTS, "header too small", "fetched whole"]),
    "three bytes": (weights(b"\0\0\0"), [WEIGHTS, "header too small"]),
    "text": (weights(b"<!DOCTYPE html><html>Not found</html>"), [WEIGHTS, "header"]),
    "git lfs pointer": (weights(LFS_POINTER), [WEIGHTS, "Git LFS"]),
    "length beyond the file": (weights(b"\xff" * 8 + b"{}"), [WEIGHTS, "header"]),
    "header that is no json": (weights(b"\5" + bytes(7) + b"{bad}"), [WEIGHTS, "JSON"]),
    "header that is a list": (lambda f: write_file(f / WEIGHTS, "[]"), [WEIGHTS, "sequence"]),
    "header of other letters": (
        lambda f: write_file(f / WEIGHTS, b"\xff\xfe{}"),
        [WEIGHTS, "UTF-8"],
    ),
    "header nested deep": (
        lambda f: write_file(f / WEIGHTS, '{"a":' * 50_000 + "1" + "}" * 50_000),
        [WEIGHTS, "JSON"],
    ),
    "no tensors": (lambda f: write_file(f / WEIGHTS, "{}"), [WEIGHTS, "no tensor"]),
    "cut in the header": (lambda f: os.truncate(f / WEIGHTS, 60), [WEIGHTS, "header length"]),
    "cut by one byte": (cut(1), [WEIGHTS, "incomplete", "fetched whole"]),
    "cut in half": (lambda f: cut(os.stat(f / WEIGHTS).st_size // 3)(f), [WEIGHTS, "incomplete"]),
    "bytes behind the tensors": (padded, [WEIGHTS, "not fully covered"]),
    "a folder": (replaced(Path.mkdir), [WEIGHTS, "is a folder"]),
    "a link to itself": (replaced(lambda p: p.symlink_to(p.name)), [WEIGHTS, "symbolic links"]),
    "a link to nothing": (replaced(lambda p: p.symlink_to("gone")), [WEIGHTS, "No such file"]),
    "a pipe": (replaced(os.mkfifo), [WEIGHTS, "not a regular file"]),
    "gone": (lambda f: (f / WEIGHTS).unlink(), ["no weights", "*.safetensors"]),
    "pickled": (lambda f: (f / WEIGHTS).rename(f / "pytorch_model.bin"), ["pickled", ".bin"]),
}

HEADERS: Table = {
    "an entry that is null": (
        header(lambda h: h.update({find(h, "o_proj.weight"): None})),
        [WEIGHTS, "null"],
    ),
    "no dtype": (header(lambda h: h[find(h, "o_proj.weight")].pop("dtype")), [WEIGHTS, "dtype"]),
    "an unknown dtype": (of("o_proj.weight", dtype="F33"), [WEIGHTS, "F33", "BOOL"]),
    "a shape that is a number": (of("o_proj.weight", shape=3), [WEIGHTS, "integer `3`"]),
    "a negative size": (of("o_proj.weight", shape=[-4, -4]), [WEIGHTS, "integer `-4`"]),
    "a size that is true": (of("o_proj.weight", shape=[True]), [WEIGHTS, "boolean `true`"]),
    "offsets that are text": (of("o_proj.weight", data_offsets="0"), [WEIGHTS, "a tuple"]),
    "offsets reversed": (
        header(lambda h: h[find(h, "o_proj.weight")]["data_offsets"].reverse()),
        [WEIGHTS, "offset", "o_proj.weight"],
    ),
    "offsets beyond the file": (
        of("v_proj.weight", data_offsets=[10**9, 10**9 + 8]),
        [WEIGHTS, "offset"],
    ),
    "a shape of more bytes": (
        of("o_proj.weight", shape=[10**6, 10**6]),
        [WEIGHTS, "invalid shape"],
    ),
    "overlapping tensors": (swapped, [WEIGHTS, "offset", "_proj.weight"]),
    "a hole": (header(lambda h: h.pop(find(h, "o_proj.weight"))), [WEIGHTS, "offset"]),
    "a tensor twice": (twice, ["o_proj.weight", "twice"]),
    "metadata that is a number": (header(lambda h: h.update(__metadata__=3)), [WEIGHTS, "a map"]),
}

TENSORS: Table = {
    "int8": (cast("q_proj.weight", "I8"), ["q_proj.weight", "I8", "BF16"]),
    "bool": (cast("down_proj.weight", "BOOL"), ["down_proj.weight", "BOOL", "BF16"]),
    "int64": (cast("post_attention_layernorm.weight", "I64"), ["layernorm.weight", "I64"]),
    "an attention tensor missing": (without("k_proj.weight"), ["k_proj.weight", "no tensor"]),
    "an mlp tensor missing": (without("up_proj.weight"), ["up_proj.weight", "no tensor"]),
    "a norm missing": (
        without("post_attention_layernorm.weight"),
        ["post_attention_layernorm.weight", "no tensor"],
    ),
    "transposed": (
        reshaped("gate_proj.weight", lambda shape: shape[::-1]),
        ["gate_proj.weight", "intermediate_size"],
    ),
    "a row too few": (reshaped("v_proj.weight", lambda s: [s[0] - 1, s[1]]), ["v_proj.weight"]),
    "flat": (reshaped("down_proj.weight", lambda s: [s[0] * s[1]]), ["down_proj.weight"]),
    "a vocabulary too small": (
        reshaped("embed_tokens.weight", lambda s: [s[0] - 1, s[1]]),
        ["embed_tokens.weight", "vocab_size"],
    ),
    "an unknown tensor": (added("extra.weight", "o_proj.weight"), ["extra.weight", "unexpected"]),
    "other names": (renamed(lambda n: n.replace("self_attn", "attention")), ["no tensor"]),
}

CONFIGS: Table = {
    "too few layers": (config(num_hidden_layers=2), ["num_hidden_layers", "2", "1 layer"]),
    "no layers": (config(num_hidden_layers=0), ["num_hidden_layers", "0"]),
    "10^30 layers": (config(num_hidden_layers=10**30), ["num_hidden_layers"]),
    "negative hidden_size": (config(hidden_size=-4), ["hidden_size", "-4"]),
    "hidden_size as text": (config(hidden_size="4"), ["hidden_size", "'4'"]),
    "hidden_size that is true": (config(hidden_size=True), ["hidden_size", "True"]),
    "hidden_size as a fraction": (config(hidden_size=4.5), ["hidden_size", "4.5"]),
    "no hidden_size": (config(hidden_size=None), ["hidden_size"]),
    "no vocab_size": (config(vocab_size=None), ["vocab_size"]),
    "no num_hidden_layers": (config(num_hidden_layers=None), ["num_hidden_layers"]),
    "no num_attention_heads": (config(num_attention_heads=None), ["num_attention_heads"]),
    "no intermediate_size": (config(intermediate_size=None), ["intermediate_size"]),
    "another intermediate_size": (config(intermediate_size=5), ["intermediate_size", "5"]),
    "no heads": (config(num_attention_heads=0), ["num_attention_heads", "0"]),
    "more heads": (config(num_attention_heads=64), ["num_attention_heads"]),
    "kv heads that divide not": (config(num_key_value_heads=3), ["num_key_value_heads", "3"]),
    "no kv heads": (config(num_key_value_heads=0), ["num_key_value_heads", "0"]),
    "other kv heads": (config(num_key_value_heads=1, head_dim=1), ["_proj.weight"]),
    "another head_dim": (config(head_dim=5), ["_proj.weight", "head_dim"]),
    "head_dim zero": (config(head_dim=-1), ["head_dim", "-1"]),
    "another vocabulary": (config(vocab_size=17), ["vocab_size", "17"]),
    "tie_word_embeddings as text": (config(tie_word_embeddings="yes"), ["tie_word_embeddings"]),
    "biases that are not there": (
        config(attention_bias=True),
        ["q_proj.bias", "no tensor", "attention_bias"],
    ),
    "biases as text": (config(attention_bias="no"), ["attention_bias", "'no'"]),
    "another activation": (config(hidden_act="relu"), ["hidden_act", "'relu'", "'silu'"]),
    "architectures as text": (config(architectures="Llama"), ["architectures", "'Llama'"]),
    "architectures of numbers": (config(architectures=[3]), ["architectures", "[3]"]),
    "no positions": (config(max_position_embeddings=0), ["max_position_embeddings", "0"]),
    "positions as text": (config(max_position_embeddings="2k"), ["max_position_embeddings"]),
    "epsilon as text": (config(rms_norm_eps="small"), ["rms_norm_eps", "'small'"]),
    "a dtype of integers": (config(dtype="int8"), ["dtype", "'int8'", "'bfloat16'"]),
    "a dtype with its module": (config(dtype="torch.bfloat16"), ["dtype", "'torch.bfloat16'"]),
    "rope as a number": (config(rope_parameters=3), ["rope_parameters", "3"]),
    "config empty": (lambda f: (f / "config.json").write_text(""), ["config.json"]),
    "config cut": (lambda f: os.truncate(f / "config.json", 20), ["config.json", "JSON"]),
    "config a list": (lambda f: (f / "config.json").write_text("[]"), ["config.json", "object"]),
    "config null": (lambda f: (f / "config.json").write_text("null"), ["config.json", "object"]),
    "config nested deep": (
        lambda f: (f / "config.json").write_text('{"a":' * 50_000 + "1" + "}" * 50_000),
        ["config.json", "JSON"],
    ),
    "config a folder": (replaced(Path.mkdir, "config.json"), ["config.json"]),
    "config a link to itself": (
        replaced(lambda p: p.symlink_to(p.name), "config.json"),
        ["config.json"],
    ),
}

SHARDS: Table = {
    "index that is no json": (
        index(lambda f, _: (f / "model.safetensors.index.json").write_text("{")),
        ["model.safetensors.index.json", "JSON"],
    ),
    "index that is a list": (index(lambda f, _: write_index(f, [])), ["index.json", "object"]),
    "index without a map": (index(lambda f, _: write_index(f, {})), ["index.json", "weight_map"]),
    "index with an empty map": (
        index(lambda f, _: write_index(f, {"weight_map": {}})),
        ["index.json", "weight_map"],
    ),
    "index of numbers": (
        index(lambda f, m: write_index(f, {"weight_map": dict.fromkeys(m, 3)})),
        ["index.json", "weight_map"],
    ),
    "a file missing": (index(lambda f, m: (f / min(m.values())).unlink()), ["00001-of", "missing"]),
    "a file missing, and the index": (index(without_index), ["no tensor"]),
    "a tensor in another file than it says": (index(moved), ["o_proj.weight", "index.json"]),
    "a tensor in two files": (index(in_both), ["00001-of", "00002-of", "both"]),
    "a file cut short": (
        index(
            lambda f, m: os.truncate(f / max(m.values()), os.stat(f / max(m.values())).st_size - 4)
        ),
        ["00002-of", "incomplete"],
    ),
}

DAMAGE: Table = {**FILES, **HEADERS, **TENSORS, **CONFIGS, **SHARDS}

# Of an EAGLE head alone; vLLM 0.30 refuses each with a traceback or leaves it out.
EAGLE_DAMAGE: Table = {
    "no fusion": (without("fc.weight"), ["not an EAGLE head", "fc.weight", "'draft_model'"]),
    "fusion of three states": (
        reshaped("fc.weight", lambda s: [s[0], 3 * s[0]]),
        ["fc.weight", "[4, 12]", "[4, 8]", "hidden_size"],
    ),
    "fusion in int8": (cast("fc.weight", "I8"), ["fc.weight", "I8"]),
    "names of a whole model": (
        renamed(lambda name: f"model.{name}"),
        ["no tensor layers.0.*", "EagleLlamaForCausalLM", "model.embed_tokens.weight"],
    ),
    "an output layer": (
        added("lm_head.weight", "embed_tokens.weight"),
        ["lm_head.weight", "unexpected", "target's"],
    ),
    "a last norm": (
        added("norm.weight", "post_attention_layernorm.weight"),
        ["norm.weight", "unexpected"],
    ),
    "a first norm": (
        added("layers.0.input_layernorm.weight", "post_attention_layernorm.weight"),
        ["layers.0.input_layernorm.weight", "unexpected"],
    ),
    "a bias that vLLM leaves out": (
        lambda f: edit_tensors(f, lambda e: e.update({"fc.bias": Entry("F32", [1], b"\0\0\x80?")})),
        ["fc.bias", "unexpected", "leave it out"],
    ),
    "a map of the vocabulary": (
        lambda f: edit_tensors(f, lambda e: e.update(d2t=zeros([4], "I64"))),
        ["d2t", "unexpected"],
    ),
    "no architectures": (config(architectures=None), ["architectures", "None"]),
    "architectures empty": (config(architectures=[]), ["architectures", "[]"]),
}
