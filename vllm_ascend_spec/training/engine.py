"""The target in vLLM: what is known of it before its weights are loaded, and its engines."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from vllm_ascend_spec.errors import AscendSpecError
from vllm_ascend_spec.training.settings import Settings
from vllm_ascend_spec.training.speculation import with_section
from vllm_ascend_spec.training.target import target_hash

# A phase is a process of its own. With the engine inside of it nothing outlives a kill, and which
# requests share a step does not depend on when they arrive, so a second start repeats the first.
ENVIRONMENT = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}


@dataclass(frozen=True)
class Model:
    """What vLLM knows of the target before it loads weights.

    Attributes:
        hash: says which checkpoint it is.
        dtype: of weights and hidden states, such as ``bfloat16``.
        num_layers: layers of its text part.
        hidden_size: width of their outputs.
        vocab_size: rows of its embedding.
        tokenizer: as its server has it.
    """

    hash: str
    dtype: str
    num_layers: int
    hidden_size: int
    vocab_size: int
    tokenizer: Any


def read_model(settings: Settings) -> Model:
    """Return what vLLM knows of the target; its engine's options count, such as a tokenizer.

    Raises:
        AscendSpecError: vLLM refuses an option for this target, such as a length; in one line.
    """
    _prepare()
    from vllm import EngineArgs
    from vllm.tokenizers import cached_tokenizer_from_config

    # The engine's whole configuration: the plugin mends how vLLM reads some models there.
    with _told_in_one_line():
        config = EngineArgs(**target_arguments(settings)).create_engine_config().model_config
        tokenizer = cached_tokenizer_from_config(config)
    return Model(
        hash=target_hash(settings.model),
        dtype=str(config.dtype).removeprefix("torch."),
        num_layers=config.hf_text_config.num_hidden_layers,
        hidden_size=config.get_hidden_size(),
        vocab_size=config.get_vocab_size(),
        tokenizer=tokenizer,
    )


def start_engine(settings: Settings, usual: Mapping[str, Any], own: Mapping[str, Any]) -> Any:
    """Start an engine of the target and return it, a ``vllm.LLM``.

    Args:
        settings: their ``engine`` has arguments of the user's.
        usual: arguments unless the user has given others.
        own: arguments whatever the user has given.

    Raises:
        AscendSpecError: an option is wrong, or vLLM refuses to start, such as with too little
            memory; in one line.
    """
    _prepare()
    from vllm import LLM

    with _told_in_one_line():
        return LLM(**{"use_tqdm_on_load": False, **usual, **target_arguments(settings), **own})


@contextmanager
def _told_in_one_line() -> Iterator[None]:
    """Turn what vLLM refuses into an error of one line."""
    try:
        yield
    except AscendSpecError:
        raise
    except (OSError, ValueError) as error:  # a tokenizer that is not there is an OSError
        told = " ".join(_said(error).split())
        raise AscendSpecError(f"the target's engine does not start: {told}") from error


def _said(error: Exception) -> str:
    """Return what vLLM says; pydantic puts the arguments and a link around it."""
    problems = getattr(error, "errors", None)
    if not callable(problems):
        return str(error)
    return "; ".join(str(each["msg"]).removeprefix("Value error, ") for each in problems())


def _prepare() -> None:
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def target_arguments(settings: Settings) -> dict[str, Any]:
    """Return the arguments of all engines; our section is for those that are measured or served.

    Without speculation it is refused, and what the phases ask is not to be collected.
    """
    return {
        **with_section(settings.engine, {}),
        "model": str(settings.model),
        "dtype": settings.dtype,
        "max_model_len": settings.max_model_len,
    }
