"""Llama and its relatives: Mistral, Qwen2 and Qwen3, as vLLM 0.30 loads them.

Tensors have transformers' names, which vLLM's ``load_weights`` maps to its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from vllm_ascend_spec.checkpoint import config_json
from vllm_ascend_spec.checkpoint.errors import InvalidCheckpointError, short_value
from vllm_ascend_spec.checkpoint.tensors import Shape, Table

Config = Mapping[str, Any]
EMBEDDING, HEAD = "embed_tokens.weight", "lm_head.weight"
VOCAB, BIAS = "vocab_size and hidden_size", "attention_bias, bias or qkv_bias"


@dataclass(frozen=True)
class Sizes:
    """What decides the shapes of a decoder layer; read from ``config.json``."""

    hidden: int
    inner: int
    vocab: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int


@dataclass(frozen=True)
class LlamaVariant:
    """How a relative of Llama differs from it.

    Attributes:
        kv_heads: default of ``num_key_value_heads``; None means as many as there are heads.
        head_dim: default of ``head_dim``; None means hidden_size / num_attention_heads.
        own_head_dim: whether vLLM reads ``head_dim`` at all.
        biases: returns whether q, k and v have a bias, and whether o has one.
        head_norms: whether q and k are normalized per head.
        not_null: entries that may be missing but not null.
    """

    biases: Callable[[Config], tuple[bool, bool]]
    kv_heads: int | None = None
    head_dim: int | None = None
    own_head_dim: bool = True
    head_norms: bool = False
    not_null: tuple[str, ...] = ()


def _llama_biases(config: Config) -> tuple[bool, bool]:
    both = config_json.flag(config, "attention_bias") or config_json.flag(config, "bias")
    return config_json.flag(config, "qkv_bias", both), both


LLAMA = LlamaVariant(_llama_biases)
MISTRAL = LlamaVariant(_llama_biases, kv_heads=8, not_null=("num_key_value_heads",))
QWEN2 = LlamaVariant(lambda config: (True, False), kv_heads=32, own_head_dim=False)
QWEN3 = LlamaVariant(
    lambda config: (config_json.flag(config, "attention_bias"), False),
    kv_heads=32,
    head_dim=128,
    head_norms=True,
    not_null=("head_dim",),
)
VARIANTS = {
    "LlamaForCausalLM": LLAMA,
    "LLaMAForCausalLM": LLAMA,
    "MistralForCausalLM": MISTRAL,
    "Qwen2ForCausalLM": QWEN2,
    "Qwen3ForCausalLM": QWEN3,
}
# vLLM's choice for a config that names no architecture.
BY_MODEL_TYPE = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}


def sizes_of(config: Config, relative: LlamaVariant) -> Sizes:
    """Read and check the sizes of a model.

    Raises:
        InvalidCheckpointError: one is missing, of another type, or does not fit the others.
    """
    size = config_json.size
    for name in relative.not_null:
        if name in config:
            size(config, name)
    hidden, heads = size(config, "hidden_size"), size(config, "num_attention_heads")
    kv_heads = size(config, "num_key_value_heads", _kv_heads(config, relative, heads))
    if heads % kv_heads:
        raise InvalidCheckpointError(
            f"config.json: num_key_value_heads is {short_value(kv_heads)}; valid: a divisor of "
            f"num_attention_heads, {short_value(heads)}"
        )
    if hidden % heads:
        raise InvalidCheckpointError(
            f"config.json: num_attention_heads is {short_value(heads)}; valid: a divisor of "
            f"hidden_size, {short_value(hidden)}"
        )
    head_dim = relative.head_dim or hidden // heads
    if config.get("head_dim") != 0:  # vLLM takes 0 for a missing entry
        head_dim = size(config, "head_dim", head_dim)
    return Sizes(
        hidden=hidden,
        inner=size(config, "intermediate_size"),
        vocab=size(config, "vocab_size"),
        layers=size(config, "num_hidden_layers"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim if relative.own_head_dim else hidden // heads,
    )


def _kv_heads(config: Config, relative: LlamaVariant, heads: int) -> int:
    """Return the default of ``num_key_value_heads``, which differs for null and absent."""
    if relative.kv_heads is None or "num_key_value_heads" in config:
        return heads
    return relative.kv_heads


def check_settings(config: Config) -> None:
    """Check the types of the entries that decide no shape.

    Raises:
        InvalidCheckpointError: naming the first entry of a wrong type.
    """
    if not isinstance(config.get("model_type"), str):
        raise InvalidCheckpointError(
            f"config.json: model_type is {short_value(config.get('model_type'))}; "
            "valid: a name that transformers knows, such as 'llama'"
        )
    config_json.flag(config, "tie_word_embeddings")
    if "max_position_embeddings" in config:
        config_json.size(config, "max_position_embeddings")
    config_json.check_number(config, "rms_norm_eps", (float,))
    if config.get("rope_theta") is not None:
        config_json.check_number(config, "rope_theta")
    for name in ("rope_parameters", "rope_scaling", "quantization_config"):
        config_json.check_table(config, name)
    for name in ("dtype", "torch_dtype"):
        config_json.check_dtype(config, name)
    activation = config.get("hidden_act", "silu")
    if activation != "silu":
        raise InvalidCheckpointError(
            f"config.json: hidden_act is {short_value(activation)}; valid: 'silu'"
        )


def layer_shapes(config: Config, sizes: Sizes, relative: LlamaVariant) -> dict[str, Shape]:
    """Return the tensors of a decoder layer."""
    hidden = Shape((sizes.hidden,), "hidden_size")
    attention = "hidden_size, head_dim and the numbers of heads"
    queries, keys = sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim
    rows = {"q_proj": queries, "k_proj": keys, "v_proj": keys}
    qkv_bias, o_bias = relative.biases(config)
    shapes = {"input_layernorm.weight": hidden, "post_attention_layernorm.weight": hidden}
    for name, count in rows.items():
        shapes[f"self_attn.{name}.weight"] = Shape((count, sizes.hidden), attention)
        if qkv_bias:
            shapes[f"self_attn.{name}.bias"] = Shape((count,), BIAS)
    shapes["self_attn.o_proj.weight"] = Shape((sizes.hidden, queries), attention)
    if o_bias:
        shapes["self_attn.o_proj.bias"] = Shape((sizes.hidden,), BIAS)
    if relative.head_norms:
        for name in ("q_norm", "k_norm"):
            shapes[f"self_attn.{name}.weight"] = Shape((sizes.head_dim,), "head_dim")
    return shapes | _mlp_shapes(sizes, config_json.flag(config, "mlp_bias"))


def _mlp_shapes(sizes: Sizes, bias: bool) -> dict[str, Shape]:
    why = "intermediate_size and hidden_size"
    shapes = {}
    for name in ("gate_proj", "up_proj"):
        shapes[f"mlp.{name}.weight"] = Shape((sizes.inner, sizes.hidden), why)
        if bias:
            shapes[f"mlp.{name}.bias"] = Shape((sizes.inner,), "mlp_bias")
    shapes["mlp.down_proj.weight"] = Shape((sizes.hidden, sizes.inner), why)
    if bias:
        shapes["mlp.down_proj.bias"] = Shape((sizes.hidden,), "mlp_bias")
    return shapes


def table_of(architecture: str, config: Config) -> Table | None:
    """Return the tensors of a Llama or a relative, or None for another architecture.

    Raises:
        InvalidCheckpointError: an entry of the config is missing or wrong.
    """
    relative = VARIANTS.get(architecture)
    if relative is None:
        return None
    check_settings(config)
    sizes = sizes_of(config, relative)
    layer = layer_shapes(config, sizes, relative)
    tied = config_json.flag(config, "tie_word_embeddings")
    embedding = Shape((sizes.vocab, sizes.hidden), VOCAB)
    outside = {
        f"model.{EMBEDDING}": embedding,
        "model.norm.weight": Shape((sizes.hidden,), "hidden_size"),
    }
    return Table(
        name=architecture,
        outside=outside if tied else {**outside, HEAD: embedding},
        stack="model.layers.",
        layers=sizes.layers,
        layer=lambda number: layer,
        optional={HEAD: embedding} if tied else {},
    )
