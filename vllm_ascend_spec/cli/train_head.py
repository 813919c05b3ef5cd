"""The head that ``train`` begins with, and what a head reads and drafts."""

from __future__ import annotations

from pathlib import Path

from vllm_ascend_spec.checkpoint.config_json import NAME as CONFIG
from vllm_ascend_spec.checkpoint.config_json import parse_object, read_config, size, text_of
from vllm_ascend_spec.checkpoint.errors import blame
from vllm_ascend_spec.checkpoint.folder import find_folder
from vllm_ascend_spec.checkpoint.speculators import is_speculators
from vllm_ascend_spec.cli import train_options
from vllm_ascend_spec.config.device import Device
from vllm_ascend_spec.config.engine import EngineOptions
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.hooks.preflight import resolve_engine
from vllm_ascend_spec.training import methods
from vllm_ascend_spec.training.head_layers import layers_of_head
from vllm_ascend_spec.training.settings import Settings
from vllm_ascend_spec.training.speculation import with_head

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


def check_head(head: Path, settings: Settings, device: Device | None) -> None:
    """Refuse a head of another target or method, by the checks of ``check``.

    Raises:
        ConfigError: naming what differs.
    """
    options = EngineOptions(device=device)
    with blame(FROM, str(head)):
        is_converted = is_speculators(parse_object(CONFIG, (head / CONFIG).read_bytes()))
    if not is_converted and methods.METHODS[settings.method].converter is None:
        problem = (
            f"speculators has no converter for {settings.method}; valid: a head in the form of the "
            "speculators library"
        )
        raise ConfigError(FROM, str(head), problem)
    spec = with_head(settings.method, head, settings.num_speculative_tokens)
    try:
        resolve_engine(str(settings.model), spec, engine=options)
    except ConfigError as error:
        if error.value != str(head):
            raise
        raise ConfigError(FROM, str(head), error.problem) from None


def find_layers(text: str | None, method: str, target: Path, head: Path | None) -> tuple[int, ...]:
    """Return the layers that the head reads.

    Raises:
        ConfigError: the target does not have them, or the head of ``--from`` reads others.
    """
    with blame(MODEL, str(target)):
        depth = size(text_of(read_config(target)), "num_hidden_layers")
    asked = None if text is None else train_options.parse_layers(text)
    own = None
    if head is not None:
        with blame(FROM, str(head)):
            own = layers_of_head(method, head, depth)
    if asked is not None and own is not None and asked != own:
        problem = f"the head of --from reads {','.join(map(str, own))}; leave --layers out"
        raise ConfigError("--layers", text, problem)
    found = asked or own or methods.default_layers(method, depth)
    methods.check_layers("--layers", method, found, depth)
    return found


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
    if size is not None and isinstance(whole, int) and size > whole:
        problem = f"valid: 1 to {whole}, the target's vocab_size"
        raise ConfigError("--draft-vocab-size", size, problem)
    return size
