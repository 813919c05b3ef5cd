"""Forms of EAGLE-3 heads that vLLM loads, and damages with what their messages have to name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.checkpoint.variants import join, with_entries
from tests.config.checkpoints import HIDDEN, VOCAB, Entry, edit_config, edit_tensors
from tests.config.damage import added, cast, renamed, reshaped, shard, without

Change = Callable[[Path], object]
TARGET_LAYERS = 12
IDS = "eagle_aux_hidden_state_layer_ids"


def midlayer(folder: Path) -> None:
    """Name the layer as the authors of EAGLE-3 did."""
    renamed(lambda name: name.replace("layers.0.", "midlayer."))(folder)


def eagle_config(**entries: Any) -> Change:
    return lambda folder: edit_config(folder, eagle_config=entries)


def d2t(*targets: int, dtype: str = "I64") -> Change:
    """Map the draft's tokens to these of the target."""
    size = 8 if dtype == "I64" else 4
    offsets = [
        (token - own).to_bytes(size, "little", signed=True) for own, token in enumerate(targets)
    ]
    entry = Entry(dtype, [len(targets)], b"".join(offsets))
    return lambda folder: edit_tensors(folder, lambda e: e.update(d2t=entry))


def wide(folder: Path) -> None:
    """Read states that are wider than the head itself."""
    edit_config(folder, target_hidden_size=2 * HIDDEN)
    reshaped("fc.weight", lambda shape: [shape[0], 2 * shape[1]])(folder)


def last_state_alone(folder: Path) -> None:
    without("fc.weight")(folder)
    eagle_config(use_aux_hidden_state=False)(folder)


def five_states(folder: Path) -> None:
    edit_config(folder, eagle_config={IDS: [1, 3, 5, 7, 9]})
    reshaped("fc.weight", lambda shape: [shape[0], 5 * HIDDEN])(folder)


NORMS = {f"fc_norm.{number}.weight": [HIDDEN] for number in range(3)}
PASSING: dict[str, tuple[dict[str, Any], Change]] = {
    "as it is": ({}, lambda folder: None),
    "midlayer": ({}, midlayer),
    "sharded": ({}, shard),
    "joined projections": ({}, join),
    "no embedding": ({}, without("embed_tokens.weight")),
    "no output layer": ({}, without("lm_head.weight")),
    "own vocabulary": ({"draft_vocab_size": 8}, lambda folder: None),
    "own vocabulary in int32": ({"draft_vocab_size": 8}, d2t(*range(0, 16, 2), dtype="I32")),
    "both maps": ({"draft_vocab_size": 8}, with_entries(("t2d", [VOCAB], "BOOL"))),
    "several layers": ({"num_hidden_layers": 3}, lambda folder: None),
    "several layers, and one norm": (
        {"num_hidden_layers": 2},
        without("layers.1.hidden_norm.weight"),
    ),
    "layers named": ({}, eagle_config(**{IDS: [0, 5, TARGET_LAYERS]})),
    "layers named outside": ({IDS: [1, 5, 11]}, lambda folder: None),
    "five states": ({}, five_states),
    "the last state alone": ({}, last_state_alone),
    "norms of the states": (
        {"fc_norm": True, "norm_output": True},
        with_entries(*((name, shape, "F32") for name, shape in NORMS.items())),
    ),
    "a norm before fusion": (
        {"norm_before_fc": True},
        with_entries(("input_norm.weight", [3 * HIDDEN], "F32")),
    ),
    "a mask for parallel drafts": ({}, with_entries(("mask_hidden", [1, 3 * HIDDEN], "F32"))),
    "named after the authors' class": (
        {"architectures": ["LlamaForCausalLMEagle3"]},
        lambda folder: None,
    ),
    "named after vLLM's class": (
        {"architectures": ["Eagle3LlamaForCausalLM"]},
        lambda folder: None,
    ),
    "attention with biases": (
        {"attention_bias": True},
        with_entries(
            *(
                (f"layers.0.self_attn.{part}.bias", [size], "F32")
                for part, size in {"q_proj": 4, "k_proj": 2, "v_proj": 2, "o_proj": 4}.items()
            )
        ),
    ),
    "another architecture": (
        {"architectures": ["Eagle3DeepseekV2ForCausalLM"]},
        without("mlp.up_proj.weight"),
    ),
}
OWN = {"draft_vocab_size": 8}
DAMAGED: dict[str, tuple[dict[str, Any], Change, list[str]]] = {
    "no fusion": ({}, without("fc.weight"), ["no tensor fc.weight", "[4, 12]"]),
    "fusion of one state": (
        {},
        reshaped("fc.weight", lambda s: [s[0], 4]),
        ["fc.weight", "[4, 4]", "[4, 12]"],
    ),
    "no last norm": ({}, without("norm.weight"), ["no tensor norm.weight", "[4]"]),
    "no norm of the embedding": (
        {},
        without("input_layernorm.weight"),
        ["no tensor layers.0.input_layernorm.weight"],
    ),
    "a layer that reads one width": (
        {},
        reshaped("q_proj.weight", lambda s: [s[0], HIDDEN]),
        ["q_proj.weight", "[4, 8]"],
    ),
    "no norms of the states": ({"fc_norm": True}, with_entries(), ["no tensor fc_norm.0.weight"]),
    "norms that nobody reads": (
        {},
        with_entries(("fc_norm.0.weight", [HIDDEN], "F32"), ("fc_norm.1.weight", [4], "BF16")),
        ["fc_norm.0.weight", "unexpected"],
    ),
    "no norm before fusion": (
        {"norm_before_fc": True},
        with_entries(),
        ["no tensor input_norm.weight", "[12]"],
    ),
    "own vocabulary without an output layer": (
        OWN,
        without("lm_head.weight"),
        ["no tensor lm_head.weight", "[8, 4]"],
    ),
    "own vocabulary without a map": (OWN, without("d2t"), ["no tensor d2t", "8", "16"]),
    "a map of another size": (OWN, d2t(0, 2, 4), ["d2t", "[3]", "[8]", "draft_vocab_size"]),
    "a map of fractions": (OWN, cast("d2t", "F64"), ["d2t", "F64", "I64"]),
    "a map beyond the target's tokens": (
        OWN,
        d2t(0, 1, 2, 3, 4, 5, 6, 16),
        ["token 7", "to 16", "0 to 15"],
    ),
    "a map below the target's tokens": (OWN, d2t(-1, *range(1, 8)), ["token 0", "to -1"]),
    "a map of two tokens to one": (OWN, d2t(0, 1, 2, 3, 4, 5, 6, 3), ["3 and 7", "to 3"]),
    "a map of the whole vocabulary": ({}, d2t(*range(16)), ["d2t", "unexpected", "16"]),
    "more tokens than the target's": (
        {"draft_vocab_size": 20},
        with_entries(),
        ["draft_vocab_size is 20", "16"],
    ),
    "draft_vocab_size as text": (
        {},
        lambda f: edit_config(f, draft_vocab_size="8"),
        ["draft_vocab_size", "'8'"],
    ),
    "midlayer among several": (
        {},
        lambda f: (midlayer(f), edit_config(f, num_hidden_layers=2)),
        ["midlayer", "is 2"],
    ),
    "midlayer and another": (
        {},
        lambda f: (midlayer(f), added("layers.1.norm.weight", "norm.weight")(f)),
        ["layers.1", "num_hidden_layers"],
    ),
    "names of a whole model": (
        {},
        renamed(lambda name: f"model.{name}"),
        ["no tensor layers.0.*", "Eagle3Llama"],
    ),
    "layers out of order": ({}, eagle_config(**{IDS: [5, 2, 9]}), [IDS, "[5, 2, 9]", "ascending"]),
    "a layer twice": ({}, eagle_config(**{IDS: [2, 2, 9]}), [IDS, "[2, 2, 9]"]),
    "a negative layer": ({}, eagle_config(**{IDS: [-1, 2, 9]}), [IDS, "[-1, 2, 9]"]),
    "layers as text": ({}, eagle_config(**{IDS: "2,6,9"}), [IDS, "'2,6,9'"]),
    "a layer that the target lacks": (
        {},
        eagle_config(**{IDS: [2, 6, 13]}),
        [IDS, "[2, 6, 13]", "0 to 12"],
    ),
    "more layers than fc reads": ({IDS: [2, 6, 8, 9]}, with_entries(), [IDS, "4 layers", "for 3"]),
    "use_aux_hidden_state as a number": (
        {},
        eagle_config(use_aux_hidden_state=1),
        ["use_aux_hidden_state", "1", "true, false"],
    ),
    "eagle_config as a list": ({"eagle_config": [1]}, with_entries(), ["eagle_config", "[1]"]),
    "another vocabulary": (
        {"vocab_size": 17},
        with_entries(),
        ["vocab_size is 17", "target's is 16"],
    ),
    "another width": ({"hidden_size": 8}, with_entries(), ["hidden_size", "8", "4"]),
}
