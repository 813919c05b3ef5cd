"""The target's hidden states that EAGLE-3 and DFlash heads read, and what follows from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vllm_ascend_spec.checkpoint import config_json
from vllm_ascend_spec.checkpoint.architectures.llama import EMBEDDING, HEAD, VOCAB
from vllm_ascend_spec.checkpoint.errors import InvalidCheckpointError, short_value
from vllm_ascend_spec.checkpoint.tensors import Shape


@dataclass(frozen=True)
class Settings:
    """What a head reads and drafts, from its config.

    Attributes:
        layer_ids: the target's layers that the states come from; None for vLLM's default, or if
            the head reads the target's last state.
        num_states: number of states of inner layers that it reads; 0 for the last state alone.
        target_hidden: width of each state.
        hidden: the head's own width.
        vocab: number of tokens of the target.
        draft_vocab: number of tokens that it can draft.
    """

    layer_ids: tuple[int, ...] | None
    num_states: int
    target_hidden: int
    hidden: int
    vocab: int
    draft_vocab: int


def settings_of(
    config: Mapping[str, Any], layer_ids: tuple[int, ...] | None, num_states: int
) -> Settings:
    """Read and check the sizes of a head.

    Raises:
        InvalidCheckpointError: an entry is missing, or of another type.
    """
    size = config_json.size
    hidden, vocab = size(config, "hidden_size"), size(config, "vocab_size")
    return Settings(
        layer_ids=layer_ids,
        num_states=num_states,
        target_hidden=size(config, "target_hidden_size", hidden),
        hidden=hidden,
        vocab=vocab,
        draft_vocab=size(config, "draft_vocab_size", vocab),
    )


def shapes_outside_layers(
    settings: Settings, states: str
) -> tuple[dict[str, Shape], dict[str, Shape]]:
    """Return the required and the optional tensors that heads have outside of their layers.

    Args:
        settings: of the head.
        states: what in ``config.json`` says how many states it reads.
    """
    outside = {"norm.weight": Shape((settings.hidden,), "hidden_size")}
    optional: dict[str, Shape] = {}
    if settings.num_states:
        sizes = (settings.hidden, settings.num_states * settings.target_hidden)
        outside["fc.weight"] = Shape(sizes, f"hidden_size, target_hidden_size and {states}")
    # With another width or vocabulary than the target's, a head cannot use the target's tensors.
    same_width = settings.target_hidden == settings.hidden
    same_vocab = settings.draft_vocab == settings.vocab
    embedding = Shape((settings.vocab, settings.hidden), VOCAB)
    head = Shape((settings.draft_vocab, settings.hidden), "draft_vocab_size and hidden_size")
    (optional if same_width else outside)[EMBEDDING] = embedding
    (optional if same_width and same_vocab else outside)[HEAD] = head
    return outside, optional


def check_width(width: int, target: Mapping[str, Any]) -> None:
    """Raise unless the target's hidden states have the ``width`` that a head reads.

    Raises:
        InvalidCheckpointError: with both widths.
    """
    hidden = target.get("hidden_size")
    if isinstance(hidden, int) and width != hidden:
        raise InvalidCheckpointError(
            f"its target_hidden_size, or else hidden_size, is {short_value(width)}, the target's "
            f"hidden_size is {hidden}; a draft has to be made for its target"
        )


def layers_of(given: Any, option: str, example: Sequence[int]) -> tuple[int, ...]:
    """Return a list of the target's layers; vLLM passes their states in ascending order.

    Raises:
        InvalidCheckpointError: it is not an ascending list of layers.
    """
    whole = isinstance(given, list) and given and all(type(number) is int for number in given)
    if not whole or given != sorted(set(given)) or given[0] < 0:
        raise InvalidCheckpointError(
            f"config.json: {option} is {short_value(given)}; valid: a list of the target's layers, "
            f"ascending, counted from 0, such as {list(example)}"
        )
    return tuple(given)


def check_layers(layers: Sequence[int], option: str, last: int) -> None:
    """Raise if a head reads the states of a layer after the target's ``last`` one.

    Raises:
        InvalidCheckpointError: naming the layers.
    """
    if layers[-1] > last:
        raise InvalidCheckpointError(
            f"config.json: {option} is {short_value(list(layers))}; valid: 0 to {last}, the "
            "target's layers"
        )
