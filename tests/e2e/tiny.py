"""Random models of a vocabulary of eight: texts so short that every one of them is seen often.

A target may have another vocabulary; heads take it from their target's checkpoint.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

VOCAB = 8
WIDTH = 64
HEADS = 2
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": VOCAB,
    "hidden_size": WIDTH,
    "intermediate_size": WIDTH,
    "num_hidden_layers": 1,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "head_dim": WIDTH // HEADS,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "attention_bias": False,
    "mlp_bias": False,
    "dtype": "float32",
}


def layer_shapes() -> dict[str, tuple[int, ...]]:
    """Return the shapes of a decoder layer's tensors."""
    square = (WIDTH, WIDTH)
    attention = {f"self_attn.{name}_proj.weight": square for name in "qkvo"}
    mlp = {f"mlp.{name}_proj.weight": square for name in ("gate", "up", "down")}
    return {**attention, **mlp, "post_attention_layernorm.weight": (WIDTH,)}


def drawn(shapes: dict[str, tuple[int, ...]], seed: int, scale: float) -> dict[str, torch.Tensor]:
    """Return random matrices of a standard deviation of ``scale``, and vectors of ones."""
    generator = torch.Generator().manual_seed(seed)
    matrices = {
        name: torch.randn(shape, generator=generator) * scale
        for name, shape in shapes.items()
        if len(shape) > 1
    }
    return {name: matrices.get(name, torch.ones(shape)) for name, shape in shapes.items()}


def save(folder: Path, weights: dict[str, torch.Tensor], **settings: Any) -> str:
    """Write a checkpoint, with further ``settings`` in its config, and return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(CONFIG | settings))
    return str(folder)


def write_target(folder: Path, vocab: int = VOCAB) -> str:
    """Write a Llama of one layer, whose next token depends on the ones before."""
    shapes = {
        "model.embed_tokens.weight": (vocab, WIDTH),
        "model.norm.weight": (WIDTH,),
        "model.layers.0.input_layernorm.weight": (WIDTH,),
        **{f"model.layers.0.{name}": shape for name, shape in layer_shapes().items()},
    }
    return save(folder, drawn(shapes, seed=0, scale=0.2), vocab_size=vocab)


def embedding_of(target: str) -> torch.Tensor:
    """Return a target's embeddings [vocab_size, WIDTH], which are its output layer, too."""
    return load_file(Path(target) / "model.safetensors")["model.embed_tokens.weight"]


def write_draft(folder: Path, target: str, noise: float = 0.1) -> str:
    """Write a draft model that is right often, not always: the target with noise on its weights."""
    weights = load_file(Path(target) / "model.safetensors")
    noisy = drawn({name: tuple(w.shape) for name, w in weights.items()}, seed=1, scale=noise)
    return save(folder, {n: w + noisy[n] if w.ndim > 1 else w for n, w in weights.items()})


def write_head(folder: Path, target: str, **settings: Any) -> str:
    """Write an EAGLE head whose drafts are random, on the target's embeddings."""
    shapes = {
        "fc.weight": (WIDTH, 2 * WIDTH),
        **{f"layers.0.{name}": shape for name, shape in layer_shapes().items()},
    }
    embedding = embedding_of(target)
    weights = {**drawn(shapes, seed=2, scale=0.15), "embed_tokens.weight": embedding}
    return save(folder, weights, vocab_size=len(embedding), **settings)


def write_likely_head(folder: Path, target: str, scale: float, noise: float) -> str:
    """Write an EAGLE head that is right often, not always: the target's layer with noise on it.

    It looks at embeddings alone, one token later than the target. The target's norms are before and
    behind its layer, and a head has none there: their usual factors are in the weights.

    Args:
        folder: where to.
        target: its folder.
        scale: about what the target's last norm multiplies by.
        noise: standard deviation, in those of the weights.
    """
    weights = load_file(Path(target) / "model.safetensors")
    embedding = weights["model.embed_tokens.weight"]
    before = 1 / (scale * float(embedding.pow(2).mean().sqrt()))
    factors = {"o_proj": scale, "down_proj": scale}
    factors |= dict.fromkeys(("q_proj", "k_proj", "v_proj"), before)
    noisy = drawn(layer_shapes(), seed=7, scale=1.0)
    head = {"fc.weight": torch.cat([scale * torch.eye(WIDTH), torch.zeros(WIDTH, WIDTH)], dim=1)}
    for name, random in noisy.items():
        own = weights[f"model.layers.0.{name}"]
        if own.ndim > 1:
            own = (own + noise * own.std() * random) * factors.get(name.split(".")[1], 1.0)
        head[f"layers.0.{name}"] = own
    head["embed_tokens.weight"] = embedding
    return save(folder, head, vocab_size=len(embedding))


# Of the target's tokens those that the EAGLE-3 head can draft.
KNOWN = (1, 2, 4, 6, 7)


# A token that stands for what is to be drafted.
MASK = 5
# Width of a DSpark head's Markov head.
RANK = 4


def write_eagle3_head(folder: Path, in_one_pass: bool = False) -> str:
    """Write an EAGLE-3 head whose drafts are random, over a part of the vocabulary.

    Args:
        folder: where to.
        in_one_pass: whether it is one of P-EAGLE, with a state for masks.
    """
    layer = layer_shapes() | {f"self_attn.{name}_proj.weight": (WIDTH, 2 * WIDTH) for name in "qkv"}
    norms = ("hidden_norm", "input_layernorm")
    shapes = {
        "fc.weight": (WIDTH, 2 * WIDTH),
        "norm.weight": (WIDTH,),
        "lm_head.weight": (len(KNOWN), WIDTH),
        **{f"layers.0.{name}": shape for name, shape in layer.items()},
        **{f"layers.0.{name}.weight": (WIDTH,) for name in norms},
    }
    weights = drawn(shapes, seed=3, scale=0.15)
    weights["d2t"] = torch.tensor(KNOWN) - torch.arange(len(KNOWN))
    settings: dict[str, Any] = {"draft_vocab_size": len(KNOWN)}
    settings["eagle_config"] = {"eagle_aux_hidden_state_layer_ids": [0, 1]}
    if in_one_pass:
        weights |= drawn({"mask_hidden": (1, 2 * WIDTH)}, seed=4, scale=1.0)
        settings["ptd_token_id"] = MASK
    return save(folder, weights, **settings)


def dflash_shapes() -> dict[str, tuple[int, ...]]:
    """Return the tensors of a DFlash head of one layer."""
    head_norms = {f"self_attn.{name}_norm.weight": (WIDTH // HEADS,) for name in "qk"}
    layer = {**layer_shapes(), **head_norms, "input_layernorm.weight": (WIDTH,)}
    return {
        "fc.weight": (WIDTH, WIDTH),
        "hidden_norm.weight": (WIDTH,),
        "norm.weight": (WIDTH,),
        **{f"layers.0.{name}": shape for name, shape in layer.items()},
    }


def write_dflash_head(folder: Path) -> str:
    """Write a DFlash head whose drafts are random, over states behind the target's layer."""
    return save(
        folder,
        drawn(dflash_shapes(), seed=5, scale=0.2),
        architectures=["DFlashDraftModel"],
        model_type="qwen3",
        dflash_config={"mask_token_id": MASK, "target_layer_ids": [0]},
    )


def write_dspark_head(folder: Path) -> str:
    """Write a DSpark head whose drafts are random, over a part of the vocabulary."""
    shapes = {**dflash_shapes(), "lm_head.weight": (len(KNOWN), WIDTH)}
    weights = drawn(shapes, seed=7, scale=0.2)
    markov = {"w1": (VOCAB, RANK), "w2": (len(KNOWN), RANK)}
    sizes = {f"markov_head.markov_{name}.weight": shape for name, shape in markov.items()}
    # What the draft before says has to matter.
    weights |= drawn(sizes, seed=8, scale=0.8)
    weights["d2t"] = torch.tensor(KNOWN) - torch.arange(len(KNOWN))
    return save(
        folder,
        weights,
        architectures=["Qwen3DSparkModel"],
        model_type="qwen3",
        mask_token_id=MASK,
        target_layer_ids=[0],
        draft_vocab_size=len(KNOWN),
        markov_rank=RANK,
    )


def write_mlp_speculator(folder: Path, num_drafts: int) -> str:
    """Write an MLP speculator whose drafts are random."""
    shapes: dict[str, tuple[int, ...]] = {}
    for stage in range(num_drafts):
        shapes |= {f"speculator.{part}.{stage}.weight": (VOCAB, WIDTH) for part in ("emb", "head")}
        shapes[f"speculator.proj.{stage}.weight"] = (WIDTH, WIDTH)
        shapes |= {f"speculator.ln.{stage}.{name}": (WIDTH,) for name in ("weight", "bias")}
    return save(
        folder,
        drawn(shapes, seed=6, scale=0.15),
        architectures=["MLPSpeculatorPreTrainedModel"],
        model_type="mlp_speculator",
        emb_dim=WIDTH,
        inner_dim=WIDTH,
        n_predict=num_drafts,
        top_k_tokens_per_head=[1] * num_drafts,
        n_candidates=1,
        tie_weights=False,
        scale_input=True,
    )


def write_tokenizer(folder: str) -> None:
    """Give a target of eight tokens a tokenizer: the end of a text, and the letters a to g."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = {"</s>": 0, **{letter: token + 1 for token, letter in enumerate("abcdefg")}}
    tokenizer = Tokenizer(models.BPE(vocab=words, merges=[]))
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", bos_token="</s>")
    fast.save_pretrained(folder)
