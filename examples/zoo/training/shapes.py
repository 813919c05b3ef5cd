"""Sizes of the zoo's models, shared by training, export and the model card."""

from __future__ import annotations

from dataclasses import dataclass, replace

VOCAB_SIZE = 4096
END_OF_TEXT = "<|endoftext|>"
END_OF_TEXT_ID = 0
ROPE_THETA = 10000.0
NORM_EPS = 1e-5
MAX_POSITIONS = 2048


@dataclass(frozen=True)
class Shape:
    """Size of a Llama-style decoder.

    Attributes:
        hidden: width of the residual stream.
        intermediate: width of the gated MLP.
        layers: number of decoder layers.
        heads: number of query heads.
        kv_heads: number of key and value heads.
        head_dim: width of one head.
    """

    hidden: int
    intermediate: int
    layers: int
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64


@dataclass(frozen=True)
class LatentShape(Shape):
    """Size of a DeepSeek decoder, whose heads are parts of a latent vector.

    Attributes:
        query_rank: width that queries go through.
        latent_rank: width of what keys and values are made of.
        nope_dim: of a key's head, what has no position.
        rope_dim: of a key's head, what is rotated.
        value_dim: width of a value's head.
    """

    query_rank: int = 128
    # The operators of an NPU take DeepSeek's own two sizes alone.
    latent_rank: int = 512
    rope_dim: int = 64
    nope_dim: int = 64
    value_dim: int = 64


@dataclass(frozen=True)
class MixtureShape(Shape):
    """Size of a decoder with experts, each of which is ``intermediate`` wide.

    Attributes:
        experts: of a layer.
        chosen: of them, by each token.
    """

    experts: int = 4
    chosen: int = 2


@dataclass(frozen=True)
class SparseShape(LatentShape):
    """Size of a DeepSeek V3.2 decoder: an indexer in each layer, and experts.

    Attributes:
        index_heads: number of heads of an indexer.
        index_dim: width of one of them; an NPU's operator takes 128 alone.
        index_topk: how many tokens a token attends to at most.
        dense_layers: how many layers at the start have no experts.
        experts: number of experts that a router chooses from.
        chosen: how many it chooses for a token; one more is every token's.
        expert_width: inner width of one expert.
    """

    index_heads: int = 2
    index_dim: int = 128
    index_topk: int = 2048
    dense_layers: int = 1
    experts: int = 4
    chosen: int = 2
    expert_width: int = 64


# Deep and thin: at this width a decode step costs about as much per layer whatever the width,
# so depth is what makes a target expensive beside a one-layer draft, as in a real deployment.
TARGET = Shape(hidden=256, intermediate=512, layers=12)
EAGLE = Shape(hidden=256, intermediate=704, layers=1)
EAGLE3 = Shape(hidden=256, intermediate=704, layers=1)
DRAFT = Shape(hidden=256, intermediate=704, layers=1)
QWEN35 = Shape(hidden=256, intermediate=512, layers=4)
QWEN25_VL = Shape(hidden=256, intermediate=512, layers=3)
DEEPSEEK = LatentShape(hidden=256, intermediate=512, layers=3, heads=2, kv_heads=2)
QWEN3_MOE = MixtureShape(hidden=256, intermediate=64, layers=3, experts=8)
GPT_OSS = MixtureShape(hidden=256, intermediate=64, layers=4)
GEMMA4 = Shape(hidden=256, intermediate=512, layers=3)
# Heads and keys as the target's, to whose keys and values it attends.
GEMMA4_ASSISTANT = Shape(hidden=128, intermediate=512, layers=2)
DEEPSEEK_V32 = SparseShape(
    hidden=256, intermediate=384, layers=3, heads=4, kv_heads=4, nope_dim=32, value_dim=32
)
PARD = Shape(hidden=256, intermediate=704, layers=2)
# As wide as the target's layers, which `vllm-ascend-spec train` takes over.
PEAGLE = Shape(hidden=256, intermediate=512, layers=1)
DFLASH = Shape(hidden=256, intermediate=512, layers=2)
DSPARK_RANK = 64
MLP_SPECULATOR_INNER = 224
# The layers of the target behind which the heads of EAGLE-3, DFlash and DSpark read it; the
# embedding is 0.
AUX_LAYERS = (3, 7, 12)
QWEN3_MOE_AUX_LAYERS = (1, 2, 3)
GPT_OSS_AUX_LAYERS = (1, 2, 4)


def use_shallow() -> None:
    """Make all models of the stages imported from now on as small as tests want them.

    A step of the zoo's target is twelve layers long, and tests take a million of them.
    """
    # As wide as its heads together: a MiMo has no other size for them.
    one_layer = Shape(hidden=128, intermediate=256, layers=1, heads=2, kv_heads=1)
    globals().update(
        TARGET=replace(one_layer, layers=3),
        EAGLE=one_layer,
        EAGLE3=one_layer,
        DRAFT=one_layer,
        PARD=replace(one_layer, layers=2),
        PEAGLE=one_layer,
        DFLASH=replace(one_layer, layers=2),
        DSPARK_RANK=32,
        MLP_SPECULATOR_INNER=96,
        AUX_LAYERS=(1, 2, 3),
    )
