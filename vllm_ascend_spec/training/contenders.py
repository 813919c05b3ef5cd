"""What a trained head is measured beside, and the ``speculative_config`` of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm_ascend_spec.training.output import Output
from vllm_ascend_spec.training.settings import Settings
from vllm_ascend_spec.training.speculation import with_head

# Suffix trees draft as far as they find a match, so they are not held to the head's number: as
# docs/recipes/agents.md serves them.
SUFFIX_DRAFTS = 15
HEAD, FROM, SUFFIX, NONE = "head", "from", "suffix", "none"


@dataclass(frozen=True)
class Contender:
    """One way to draft.

    Attributes:
        title: what a table calls it.
        spec: returns its ``speculative_config`` for some settings; None for no speculation.
    """

    title: str
    spec: Callable[[Settings], dict[str, Any] | None]


def _head(settings: Settings, head: Path) -> dict[str, Any]:
    return with_head(settings.method, head, settings.num_speculative_tokens)


def _begun_with(settings: Settings) -> dict[str, Any]:
    assert settings.begin_with is not None
    return _head(settings, settings.begin_with)


def _suffix(_: Settings) -> dict[str, Any]:
    # No answer is kept for the next request: the same prompts are asked twice.
    return {
        "method": "suffix",
        "num_speculative_tokens": SUFFIX_DRAFTS,
        "suffix_decoding_max_cached_requests": 0,
    }


CONTENDERS: Mapping[str, Contender] = {
    NONE: Contender("no speculation", lambda _: None),
    SUFFIX: Contender("suffix", _suffix),
    FROM: Contender("--from", _begun_with),
    HEAD: Contender("new head", lambda settings: _head(settings, Output(settings.output).head)),
}


def names_for(settings: Settings) -> list[str]:
    """Return the contenders that there are with some settings, the new head last."""
    return [name for name in CONTENDERS if name != FROM or settings.begin_with is not None]
