"""The head that ``train`` begins with, and what a head reads and drafts."""

from __future__ import annotations

from pathlib import Path

from vllm_ascend_spec.checkpoint.config_json import NAME as CONFIG
from vllm_ascend_spec.checkpoint.config_json import parse_object, read_config, size, text_of
from vllm_ascend_spec.checkpoint.errors import blame
from vllm_ascend_spec.checkpoint.folder import find_folder
from vllm_ascend_spec.checkpoint.speculators import is_speculators
from vllm_ascend_spec.cli import train_options
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.training import methods
from vllm_ascend_spec.training.head_layers import layers_of_head
from vllm_ascend_spec.training.vocabulary import choose_tokens, special_tokens

MODEL, FROM = "MODEL", "--from"


def find_head(path: Path | None) -> Path | None:
    """Return the folder of the head to adapt, absolute.

    Raises:
        ConfigError: it is no checkpoint's folder.
    """
    if path is None:
        return None
    folder = find_folder(FROM, str(path))
    if folder is None:
        raise ConfigError(FROM, str(path), "is no folder; valid: the folder of a head")
    return folder.absolute()


def check_head(head: Path, method: str) -> None:
    """Refuse a head that the trainer cannot read.

    Raises:
        ConfigError: saying which it can.
    """
    with blame(FROM, str(head)):
        is_converted = is_speculators(parse_object(CONFIG, (head / CONFIG).read_bytes()))
    if not is_converted and methods.METHODS[method].converter is None:
        problem = (
            f"speculators has no converter for {method}; valid: a head in the form of the "
            "speculators library"
        )
        raise ConfigError(FROM, str(head), problem)


def find_layers(text: str | None, method: str, target: Path, head: Path | None) -> tuple[int, ...]:
    """Return the layers that the head reads.

    Raises:
        ConfigError: the target does not have them, or the head of ``--from`` reads others.
    """
    with blame(MODEL, str(target)):
        depth = size(text_of(read_config(target)), "num_hidden_layers")
    asked = None if text is None else train_options.parse_layers(text)
    if head is not None:
        return _layers_of(head, method, depth, asked)
    found = asked or methods.default_layers(method, depth)
    methods.check_layers("--layers", method, found, depth)
    return found


def _layers_of(
    head: Path, method: str, depth: int, asked: tuple[int, ...] | None
) -> tuple[int, ...]:
    """Return the layers that a head reads, however many they are."""
    with blame(FROM, str(head)):
        own = layers_of_head(method, head, depth)
    said = ",".join(map(str, own))
    if asked is not None and asked != own:
        problem = f"the head of --from reads {said}; leave --layers out"
        raise ConfigError("--layers", ",".join(map(str, asked)), problem)
    if not all(0 <= layer <= depth for layer in own):
        problem = f"it reads the layers {said}; valid: a head for a target of {depth} layers"
        raise ConfigError(FROM, str(head), problem)
    return own


def find_vocabulary(size: int | None, target: Path, head: Path | None) -> int | None:
    """Return how many tokens the head can draft; None for all of the target's.

    Raises:
        ConfigError: the target does not have as many, or the head of ``--from`` has others.
    """
    with blame(MODEL, str(target)):
        whole = text_of(read_config(target)).get("vocab_size")
    if head is not None:
        with blame(FROM, str(head)):
            own = read_config(head).get("draft_vocab_size")
        own = None if own == whole else own
        if size not in (None, own):
            problem = f"the head of --from has {own or whole}; leave --draft-vocab-size out"
            raise ConfigError("--draft-vocab-size", size, problem)
        return own
    if size is not None and isinstance(whole, int):
        # Refuses one that does not hold the special tokens.
        choose_tokens({}, size, whole, special_tokens(target))
    return size
