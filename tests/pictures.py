"""Requests with pictures, for the zoo's Qwen2.5-VL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.zoo import ZOO

if TYPE_CHECKING:
    from examples.zoo.training.pictures import Picture

QWEN25_VL = str(ZOO / "target-qwen25-vl")
HEAD = {"method": "eagle3", "model": str(ZOO / "eagle3-qwen25-vl"), "num_speculative_tokens": 3}
DRAFT = {"method": "draft_model", "model": str(ZOO / "draft"), "num_speculative_tokens": 3}
NGRAM = {
    "method": "ngram",
    "num_speculative_tokens": 3,
    "prompt_lookup_min": 1,
    "prompt_lookup_max": 3,
}
# Its processor reads videos, too; a dummy one at the start takes long.
MEDIA = {"limit_mm_per_prompt": {"image": 2, "video": 0}}
PLACE = "<|vision_start|><|image_pad|><|vision_end|>"


def unseen_pictures() -> list[Picture]:
    """Return the pictures that the target was not trained on."""
    # It imports torch, which tests/ascend/warm.py does at a time of its own.
    from examples.zoo.training.pictures import every_picture, is_held_out

    return [picture for place, picture in enumerate(every_picture()) if is_held_out(place)]


def prompt_of(text: str, *pictures: Picture) -> dict[str, Any]:
    """Return what vLLM takes for a text with pictures behind it."""
    from PIL import Image

    images = [Image.fromarray(picture.pixels().numpy()) for picture in pictures]
    return {"prompt": text + PLACE * len(images), "multi_modal_data": {"image": images}}


def with_pictures(texts: list[str]) -> list[Any]:
    """Return texts, each with a picture in its place behind half of it but for every third text.

    Every fourth has two pictures. What follows a picture is text again, so that positions behind
    it are not places.
    """
    pictures, made = unseen_pictures(), []
    for place, text in enumerate(texts):
        if place % 3 == 2:
            made.append(text)
            continue
        some = pictures[place * 7 % len(pictures) :][: 1 + (place % 4 == 3)]
        prompt = prompt_of(text[: len(text) // 2] + "\n", *some)
        made.append({**prompt, "prompt": prompt["prompt"] + text[len(text) // 2 :]})
    return made
