"""A DeepSeek V4 with random weights: compressed attention, an indexer, several residual streams.

The names of its weights are those of DeepSeek's checkpoints, which vllm-ascend renames
(``vllm_ascend/models/deepseek_v4/model.py`` and ``mtp.py``).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file

from tests.zoo import ZOO

TOKENIZER = ("tokenizer.json", "tokenizer_config.json")
VOCABULARY = 4096
SEED = 0
# A window alone, every 4 tokens one compressed key that an indexer selects, and every 128 one.
WINDOW, SELECTED, WHOLE = 0, 4, 128


@dataclass(frozen=True, kw_only=True)
class CompressedShape:
    """Sizes, and the compression of each layer, the MTP layer's last.

    vllm-ascend's pages of a cache fit heads of 512 in bfloat16 and of 256 in float32 alone, and
    an indexer's heads of 128 (``vllm_ascend/models/layer/attention/layer.py``).
    """

    head: int = 512
    ratios: tuple[int, ...] = (WINDOW, SELECTED, WHOLE, WINDOW)
    hidden: int = 128
    heads: int = 4
    rope: int = 64
    query_rank: int = 64
    output_rank: int = 32
    groups: int = 2
    window: int = 128
    index_heads: int = 4
    index_head: int = 128
    index_topk: int = 16
    experts: int = 4
    chosen: int = 2
    expert_width: int = 64
    hash_layers: int = 1
    streams: int = 4
    stretch: int = 4  # by YaRN
    share: float = 0.2  # of what a layer adds; see _weights


# An indexer multiplies by a bfloat16 matrix
# (vllm_ascend/attention/dsa_v1.py:AscendDSAMetadataBuilder._init_hadamard). Without YaRN, which
# vllm-ascend, unlike vLLM and transformers, applies in layers with a window alone, too
# (vllm_ascend/models/deepseek_v4/model.py:DeepseekV4Attention).
FLOAT32_SHAPE = CompressedShape(head=256, ratios=(WINDOW, WHOLE, WHOLE, WINDOW), stretch=1)


def config(shape: CompressedShape) -> dict[str, object]:
    """Return the ``config.json``."""
    return {
        "architectures": ["DeepseekV4ForCausalLM"],
        "model_type": "deepseek_v4",
        "vocab_size": VOCABULARY,
        "hidden_size": shape.hidden,
        "num_hidden_layers": len(shape.ratios) - 1,
        "num_nextn_predict_layers": 1,
        "compress_ratios": list(shape.ratios),
        "num_attention_heads": shape.heads,
        "num_key_value_heads": 1,
        "head_dim": shape.head,
        "qk_rope_head_dim": shape.rope,
        "q_lora_rank": shape.query_rank,
        "o_lora_rank": shape.output_rank,
        "o_groups": shape.groups,
        "sliding_window": shape.window,
        "index_n_heads": shape.index_heads,
        "index_head_dim": shape.index_head,
        "index_topk": shape.index_topk,
        "n_routed_experts": shape.experts,
        "n_shared_experts": 1,
        "num_experts_per_tok": shape.chosen,
        "moe_intermediate_size": shape.expert_width,
        "num_hash_layers": shape.hash_layers,
        "norm_topk_prob": True,
        "scoring_func": "sqrtsoftplus",
        "topk_method": "noaux_tc",
        "routed_scaling_factor": 1.5,
        "swiglu_limit": 10.0,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "hc_mult": shape.streams,
        "hc_sinkhorn_iters": 20,
        "hc_eps": 1e-6,
        "rope_theta": 10000.0,
        "compress_rope_theta": 160000.0,
        "rope_scaling": {
            "type": "yarn",
            "rope_type": "yarn",
            "factor": shape.stretch,
            "beta_fast": 32,
            "beta_slow": 1,
            "original_max_position_embeddings": 2048,
        },
        "max_position_embeddings": 8192,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "tie_word_embeddings": False,
    }


def write(folder: Path, shape: CompressedShape, dtype: torch.dtype) -> Path:
    """Write a checkpoint with the zoo's tokenizer and return its folder."""
    folder.mkdir(parents=True)
    told = config(shape) | {"dtype": str(dtype).removeprefix("torch.")}
    (folder / "config.json").write_text(json.dumps(told))
    for name in TOKENIZER:
        shutil.copy(ZOO / "target" / name, folder)
    generator = torch.Generator().manual_seed(SEED)
    weights = {
        name: made if made.dtype == torch.int32 or name.endswith(FLOAT32) else made.to(dtype)
        for name, made in _weights(shape, generator)
    }
    save_file(weights, folder / "model.safetensors")
    return folder


# What vllm-ascend keeps in float32 in any model.
FLOAT32 = ("_fn", "_base", "_scale", "attn_sink", "ape", "compressor.norm.weight", "gate.bias")


def _weights(
    shape: CompressedShape, generator: torch.Generator
) -> Iterator[tuple[str, torch.Tensor]]:
    """Give all weights.

    Layers add little to a token's embedding, and the MTP layer begins with the embedding, so that
    both often go on alike: drafts are accepted, but not all.
    """

    def matrix(rows: int, columns: int) -> torch.Tensor:
        return torch.randn(rows, columns, generator=generator) * columns**-0.5

    embedding = torch.randn(VOCABULARY, shape.hidden, generator=generator)
    output = matrix(VOCABULARY, shape.hidden) * 4
    yield "embed.weight", embedding
    yield "head.weight", output
    yield "norm.weight", torch.ones(shape.hidden)
    yield from _mixing("hc_head", shape.streams, 1, shape, generator)
    *ratios, last = shape.ratios
    for number, ratio in enumerate(ratios):
        for name, made in _layer(shape, ratio, number < shape.hash_layers, generator):
            yield f"layers.{number}.{name}", made
    for name, made in _layer(shape, last, False, generator):
        yield f"mtp.0.{name}", made
    yield "mtp.0.emb.tok_emb.weight", embedding.clone()
    yield "mtp.0.head.weight", output.clone()
    for name in ("enorm", "hnorm", "norm"):
        yield f"mtp.0.{name}.weight", torch.ones(shape.hidden)
    yield "mtp.0.e_proj.weight", torch.eye(shape.hidden)
    yield "mtp.0.h_proj.weight", matrix(shape.hidden, shape.hidden) * shape.share
    yield from _mixing("mtp.0.hc_head", shape.streams, 1, shape, generator)


def _layer(
    shape: CompressedShape, ratio: int, by_token: bool, generator: torch.Generator
) -> Iterator[tuple[str, torch.Tensor]]:
    def matrix(rows: int, columns: int) -> torch.Tensor:
        return torch.randn(rows, columns, generator=generator) * columns**-0.5

    yield "attn_norm.weight", torch.ones(shape.hidden)
    yield "ffn_norm.weight", torch.ones(shape.hidden)
    for part in ("attn", "ffn"):
        mixes = (2 + shape.streams) * shape.streams
        yield from _mixing(f"hc_{part}", mixes, 3, shape, generator)
    heads = shape.heads * shape.head
    yield "attn.attn_sink", torch.randn(shape.heads, generator=generator)
    yield "attn.wq_a.weight", matrix(shape.query_rank, shape.hidden)
    yield "attn.q_norm.weight", torch.ones(shape.query_rank)
    yield "attn.wq_b.weight", matrix(heads, shape.query_rank)
    yield "attn.wkv.weight", matrix(shape.head, shape.hidden)
    yield "attn.kv_norm.weight", torch.ones(shape.head)
    yield "attn.wo_a.weight", matrix(shape.groups * shape.output_rank, heads // shape.groups)
    yield "attn.wo_b.weight", matrix(shape.hidden, shape.groups * shape.output_rank) * shape.share
    if ratio:
        yield from _compressor("attn.compressor", shape.head, ratio, shape, generator)
    if ratio == SELECTED:
        index = shape.index_heads * shape.index_head
        yield "attn.indexer.wq_b.weight", matrix(index, shape.query_rank)
        yield "attn.indexer.weights_proj.weight", matrix(shape.index_heads, shape.hidden)
        yield from _compressor("attn.indexer.compressor", shape.index_head, ratio, shape, generator)
    yield "ffn.gate.weight", matrix(shape.experts, shape.hidden)
    if by_token:
        first = torch.arange(VOCABULARY)[:, None] + torch.arange(shape.chosen)
        yield "ffn.gate.tid2eid", (first % shape.experts).int()
    else:
        yield "ffn.gate.bias", torch.randn(shape.experts, generator=generator) * 0.1
    for name in (*(f"experts.{i}" for i in range(shape.experts)), "shared_experts"):
        for up in ("w1", "w3"):
            yield f"ffn.{name}.{up}.weight", matrix(shape.expert_width, shape.hidden)
        yield f"ffn.{name}.w2.weight", matrix(shape.hidden, shape.expert_width) * shape.share


def _mixing(
    name: str, rows: int, scales: int, shape: CompressedShape, generator: torch.Generator
) -> Iterator[tuple[str, torch.Tensor]]:
    """Give what mixes the residual streams."""
    width = shape.streams * shape.hidden
    yield f"{name}_fn", torch.randn(rows, width, generator=generator) * width**-0.5
    yield f"{name}_base", torch.randn(rows, generator=generator)
    yield f"{name}_scale", torch.rand(scales, generator=generator) + 0.5


def _compressor(
    name: str, head: int, ratio: int, shape: CompressedShape, generator: torch.Generator
) -> Iterator[tuple[str, torch.Tensor]]:
    """Give what makes one key of ``ratio`` tokens, of twice as many where they overlap."""
    width = head * (2 if ratio == SELECTED else 1)
    yield f"{name}.ape", torch.randn(ratio, width, generator=generator) * 0.1
    for part in ("wkv", "wgate"):
        made = torch.randn(width, shape.hidden, generator=generator) * shape.hidden**-0.5
        yield f"{name}.{part}.weight", made
    yield f"{name}.norm.weight", torch.ones(head)
