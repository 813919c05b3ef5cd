"""The drafter that wraps a user-defined class.

vLLM 0.30 passes on whatever the class returns. Here its output is made valid for the scheduler, so
that a mistake in the class costs at worst acceptance: drafts beyond K and token ids outside the
vocabulary are cut off, with one warning.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from vllm.v1.spec_decode.custom_class_proposer import create_custom_proposer

from vllm_ascend_spec.errors import CustomProposerError
from vllm_ascend_spec.log import log_once
from vllm_ascend_spec.methods.drafter import HostDrafter

if TYPE_CHECKING:
    from torch import nn
    from typing_extensions import Self
    from vllm.config import VllmConfig

    from vllm_ascend_spec.methods.drafter import DrafterContext
    from vllm_ascend_spec.methods.step import DraftStep

PADDING = -1


class CustomClassDrafter(HostDrafter):
    """Holds an instance of the user's class and checks its drafts.

    Args:
        custom: the instance.
        vllm_config: configuration of the engine.
    """

    def __init__(self, custom: Any, vllm_config: VllmConfig) -> None:
        spec = vllm_config.speculative_config
        self.custom = custom
        self.name = spec.model
        self.vocab_size = vllm_config.model_config.get_vocab_size()
        self.longest = spec.num_speculative_tokens

    @classmethod
    def create(cls, engine: DrafterContext) -> Self:
        """Build the drafter of an engine, and the only instance of the user's class."""
        return cls(create_custom_proposer(engine.vllm_config), engine.vllm_config)

    def load_model(self, target_model: nn.Module) -> None:
        """Let the class load what it needs, if it has this method."""
        if hasattr(self.custom, "load_model"):
            self.custom.load_model(target_model)

    def draft(self, step: DraftStep) -> list[list[int]]:
        """Ask the class for drafts, as vLLM would.

        Raises:
            CustomProposerError: the class did not return a list of drafts for every request.
        """
        batch = step.batch
        drafts = self.custom.propose(
            step.sampled_token_ids,
            batch.num_tokens_no_spec,
            batch.token_ids_cpu,
            slot_mappings=step.slot_mappings,
        )
        rows = drafts.tolist() if hasattr(drafts, "tolist") else drafts
        self._require_rows(rows, len(step.sampled_token_ids))
        # vLLM does not tell the class K of this step.
        return [self._usable(row, step.k) for row in rows]

    def _require_rows(self, rows: Any, num_reqs: int) -> None:
        if not isinstance(rows, Sequence):
            raise self._error(f"returned {type(rows).__name__}")
        if len(rows) != num_reqs:
            raise self._error(f"returned drafts for {len(rows)} requests, asked for {num_reqs}")

    def _usable(self, row: Any, longest: int) -> list[int]:
        """Return the drafts of one request up to the first that cannot be used."""
        try:
            tokens = [int(token) for token in row]
        except (TypeError, ValueError):
            raise self._error(f"returned {row!r} for a request") from None
        usable = list(takewhile(range(self.vocab_size).__contains__, tokens))
        if len(tokens) > self.longest:
            self._warn(f"more than the {self.longest} drafts asked for")
        # Arrays are padded with -1 if a request has fewer drafts than another.
        if len(usable) < len(tokens) and tokens[len(usable)] != PADDING:
            self._warn(f"token ids outside the vocabulary of {self.vocab_size}")
        return usable[:longest]

    def _error(self, problem: str) -> CustomProposerError:
        return CustomProposerError(
            f"speculative_config.model={self.name!r}: its propose() {problem}; it has to return "
            "a list of token ids for each request"
        )

    def _warn(self, what: str) -> None:
        message = f"speculative_config.model={self.name!r} drafted {what}; they are cut off."
        log_once(logging.WARNING, message)
