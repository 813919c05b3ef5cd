"""Qwen2.5-VL: transformers' model, and the files that its processor reads.

A picture becomes tokens of a vision tower. Its tokens have positions of three dimensions (time,
height, width), as M-RoPE wants (2409.12191); those of text are the same in all three.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

from .export import copy_tokenizer
from .llama import Rotation
from .pictures import PIXELS_OF_TOKEN, Picture
from .shapes import END_OF_TEXT_ID, MAX_POSITIONS, NORM_EPS, QWEN25_VL, ROPE_THETA, VOCAB_SIZE

# Their tokens were bytes that no UTF-8 text has, so that the vocabulary stays the zoo's.
SPECIAL_TOKENS = {
    "<|vision_start|>": "õ",
    "<|vision_end|>": "ö",
    "<|image_pad|>": "÷",
    "<|video_pad|>": "ø",
}
VISION_START, VISION_END, IMAGE_PAD, VIDEO_PAD = (178, 179, 180, 181)
PATCH, TEMPORAL, MERGE = 14, 2, 2
MEAN = STD = 0.5
SECTIONS = [8, 12, 12]
MAX_PICTURE_TOKENS = 64
# Messages as Python comments, with a picture wherever the content has one.
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '# ' + message['role'] + ': ' }}"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}"
    "{% if part['type'] in ('image', 'image_url') %}"
    "{{ '<|vision_start|><|image_pad|><|vision_end|>' }}"
    "{% elif part['type'] == 'video' %}{{ '<|vision_start|><|video_pad|><|vision_end|>' }}"
    "{% elif 'text' in part %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}{{ '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '# assistant:\n' }}{% endif %}"
)


def rope_parameters() -> dict[str, Any]:
    """Return the rotary settings of the target and of its head."""
    return {"rope_type": "default", "rope_theta": ROPE_THETA, "mrope_section": SECTIONS}


def config() -> dict[str, Any]:
    """Return the ``config.json`` of the zoo's Qwen2.5-VL."""
    shape = QWEN25_VL
    return {
        "architectures": ["Qwen2_5_VLForConditionalGeneration"],
        "model_type": "qwen2_5_vl",
        "text_config": {
            "model_type": "qwen2_5_vl_text",
            "vocab_size": VOCAB_SIZE,
            "hidden_size": shape.hidden,
            "intermediate_size": shape.intermediate,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.kv_heads,
            "max_position_embeddings": MAX_POSITIONS,
            "rms_norm_eps": NORM_EPS,
            "rope_parameters": rope_parameters(),
            "hidden_act": "silu",
            "tie_word_embeddings": True,
            "bos_token_id": END_OF_TEXT_ID,
            "eos_token_id": END_OF_TEXT_ID,
            "pad_token_id": END_OF_TEXT_ID,
            "dtype": "bfloat16",
        },
        "vision_config": {
            "model_type": "qwen2_5_vl",
            "depth": 2,
            "hidden_size": 128,
            "intermediate_size": 256,
            "num_heads": 2,
            "in_channels": 3,
            "patch_size": PATCH,
            "spatial_merge_size": MERGE,
            "temporal_patch_size": TEMPORAL,
            "tokens_per_second": 2,
            "window_size": 4 * PATCH * MERGE,
            "fullatt_block_indexes": [1],
            "out_hidden_size": shape.hidden,
            "hidden_act": "silu",
        },
        "vision_start_token_id": VISION_START,
        "vision_end_token_id": VISION_END,
        "image_token_id": IMAGE_PAD,
        "video_token_id": VIDEO_PAD,
        "bos_token_id": END_OF_TEXT_ID,
        "eos_token_id": END_OF_TEXT_ID,
        "pad_token_id": END_OF_TEXT_ID,
        "tie_word_embeddings": True,
        "dtype": "bfloat16",
    }


class Qwen25VL(nn.Module):
    """The model with tied embeddings.

    Args:
        seed: of the weights.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        settings = {k: v for k, v in config().items() if k not in ("architectures", "dtype")}
        self.whole = Qwen2_5_VLForConditionalGeneration(Qwen2_5_VLConfig(**settings)).float()
        self.text = self.whole.model.language_model
        self.tower = self.whole.model.visual

    @property
    def embed_tokens(self) -> nn.Embedding:
        """The embeddings, which are the output layer, too."""
        return self.text.embed_tokens

    @property
    def norm(self) -> nn.Module:
        """The norm before the output layer."""
        return self.text.norm

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the normed hidden states [batch, length, hidden] of a text's ``tokens``."""
        positions = torch.arange(tokens.shape[1]).expand(3, len(tokens), -1)
        return self.with_states(self.embed_tokens(tokens), positions)[0]

    def with_states(
        self,
        embeddings: torch.Tensor,  # [batch, length, hidden]
        positions: torch.Tensor,  # [3, batch, length]
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Return the normed hidden states, and the residual stream behind each layer."""
        x, stream = embeddings, []
        rotation = self.text.rotary_emb(x, positions)
        for layer in self.text.layers:
            x = layer(x, position_embeddings=rotation)
            stream.append(x)
        return self.norm(x), stream

    def embed(
        self,
        tokens: torch.Tensor,  # [batch, length]
        patches: torch.Tensor,  # [num_patches, patch size]
        grids: torch.Tensor,  # [num_pictures, 3]
    ) -> torch.Tensor:
        """Return embeddings [batch, length, hidden], with pictures in the place of their tokens."""
        seen = self.tower(patches, grid_thw=grids).pooler_output
        embeddings = self.embed_tokens(tokens)
        places = (tokens == IMAGE_PAD)[..., None].expand_as(embeddings)
        return embeddings.masked_scatter(places, seen.to(embeddings.dtype))

    def positions(
        self,
        tokens: torch.Tensor,  # [batch, length]
        grids: torch.Tensor,  # [num_pictures, 3]
    ) -> torch.Tensor:
        """Return the positions [3, batch, length] of tokens with pictures among them."""
        kinds = (tokens == IMAGE_PAD).int()
        return self.whole.model.get_rope_index(tokens, kinds, image_grid_thw=grids)[0]

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return logits [..., VOCAB_SIZE] of ``hidden`` [..., hidden]."""
        return F.linear(hidden, self.embed_tokens.weight)

    def checkpoint(self) -> dict[str, torch.Tensor]:
        """Return the weights under the names of published Qwen2.5-VLs."""
        state = {f"model.{name}": value for name, value in self.text.state_dict().items()}
        return state | {f"visual.{name}": v for name, v in self.tower.state_dict().items()}


def rotation_of(
    positions: torch.Tensor,  # [3, batch, length]
) -> Rotation:
    """Return the rotary table [batch, 1, length, head_dim] of positions, as :mod:`llama` has it."""
    size = QWEN25_VL.head_dim
    frequencies = 1.0 / ROPE_THETA ** (torch.arange(0, size, 2).float() / size)
    angles = positions[..., None].float() * frequencies
    parts = angles.split(SECTIONS, -1)
    joined = torch.cat([part[dimension] for dimension, part in enumerate(parts)], -1)[:, None]
    cosines, sines = joined.cos(), joined.sin()
    return torch.cat([cosines, cosines], -1), torch.cat([-sines, sines], -1)


def grid_of(picture: Picture) -> list[int]:
    """Return how many patches a picture has in time, height and width."""
    height, width = picture.size
    return [1, height * MERGE, width * MERGE]


def patches_of(picture: Picture) -> torch.Tensor:
    """Return a picture's patches as the processor makes them, float32 [num_patches, 1176].

    The order is that of transformers' ``Qwen2VLImageProcessorPil.patchify``: the four patches of a
    token side by side.
    """
    pixels = (picture.pixels().float() / 255 - MEAN) / STD
    height, width = picture.size
    parts = pixels.view(height, MERGE, PATCH, width, MERGE, PATCH, 3)
    parts = parts.permute(0, 3, 1, 4, 6, 2, 5)[..., None, :, :]
    return parts.expand(*parts.shape[:5], TEMPORAL, PATCH, PATCH).reshape(
        -1, 3 * TEMPORAL * PATCH**2
    )


def copy_processor(tokenizer: Path, folder: Path) -> None:
    """Write the tokenizer with the tokens of pictures, and the files of the image processor."""
    copy_tokenizer(tokenizer, folder)
    path = folder / "tokenizer.json"
    parts = json.loads(path.read_text())
    vocabulary = parts["model"]["vocab"]
    for name, byte in SPECIAL_TOKENS.items():
        vocabulary[name] = vocabulary.pop(byte)
        flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        added = {"id": vocabulary[name], "content": name, **flags, "special": True}
        parts["added_tokens"].append(added)
    path.write_text(json.dumps(parts, indent=2, ensure_ascii=False))
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    token = PIXELS_OF_TOKEN**2
    common = {
        "patch_size": PATCH,
        "temporal_patch_size": TEMPORAL,
        "merge_size": MERGE,
        "image_mean": [MEAN] * 3,
        "image_std": [STD] * 3,
        "size": {"shortest_edge": token, "longest_edge": MAX_PICTURE_TOKENS * token},
        "processor_class": "Qwen2_5_VLProcessor",
    }
    types = {
        "preprocessor_config.json": {"image_processor_type": "Qwen2VLImageProcessor"},
        "video_preprocessor_config.json": {"video_processor_type": "Qwen2VLVideoProcessor"},
    }
    for name, kind in types.items():
        (folder / name).write_text(json.dumps(common | kind, indent=2) + "\n")
