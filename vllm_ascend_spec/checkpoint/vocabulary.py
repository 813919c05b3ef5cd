"""The map from a draft's tokens to the target's, if the draft has a vocabulary of its own.

``d2t`` holds for each draft token the offset to add to it to get the target's token.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping

from vllm_ascend_spec.checkpoint.errors import InvalidCheckpointError, short_value
from vllm_ascend_spec.checkpoint.safetensors import Tensor

DRAFT_TO_TARGET, TARGET_TO_DRAFT = "d2t", "t2d"
MAPS = (DRAFT_TO_TARGET, TARGET_TO_DRAFT)
# Type code of ``array`` by safetensors dtype.
WHOLE = {"I64": "q", "I32": "i"}


def check_map(tensors: Mapping[str, Tensor], draft_vocab: int, vocab: int) -> None:
    """Raise unless each of the draft's tokens maps to a different token of the target.

    Args:
        tensors: tensors of the checkpoint. Of its two maps vLLM reads ``d2t`` alone.
        draft_vocab: how many tokens the draft knows.
        vocab: how many the target knows.

    Raises:
        InvalidCheckpointError: the map is missing, unexpected, or no one-to-one map to tokens.
    """
    found = tensors.get(DRAFT_TO_TARGET)
    if draft_vocab == vocab:
        if found is not None:
            raise InvalidCheckpointError(
                f"d2t in {found.path.name} is unexpected: draft_vocab_size in config.json is the "
                f"target's vocab_size, {vocab}; leave d2t out, or give the size that it maps from"
            )
        return
    if draft_vocab > vocab:
        raise InvalidCheckpointError(
            f"config.json: draft_vocab_size is {short_value(draft_vocab)}; valid: up to "
            f"vocab_size, {short_value(vocab)}"
        )
    if found is None:
        raise InvalidCheckpointError(
            f"has no tensor d2t, which maps its draft_vocab_size of {draft_vocab} tokens to the "
            f"target's {vocab}"
        )
    if found.dtype not in WHOLE or found.shape != (draft_vocab,):
        raise InvalidCheckpointError(
            f"d2t in {found.path.name} is {found.dtype} {short_value(list(found.shape))}; valid: "
            f"I64 [{draft_vocab}], from draft_vocab_size in config.json"
        )
    _check_values(found, vocab)


def _check_values(found: Tensor, vocab: int) -> None:
    offsets = array(WHOLE[found.dtype])
    with found.path.open("rb") as file:
        file.seek(found.start)
        offsets.frombytes(file.read(found.end - found.start))
    seen: dict[int, int] = {}
    for own, offset in enumerate(offsets):
        token = own + offset
        if not 0 <= token < vocab:
            raise InvalidCheckpointError(
                f"d2t in {found.path.name} maps token {own} of the draft to {token}; valid: "
                f"0 to {vocab - 1}, the target's tokens"
            )
        if (other := seen.setdefault(token, own)) != own:
            raise InvalidCheckpointError(
                f"d2t in {found.path.name} maps tokens {other} and {own} of the draft to {token}; "
                "valid: another token of the target's for each"
            )
