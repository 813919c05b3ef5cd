"""The proposer around a person's class.

vLLM 0.30 hands over whatever the class returns. Here it is made into what the scheduler takes, so
that a mistake of the class costs acceptance at worst: drafts beyond K and token ids outside the
vocabulary are cut off, with one warning.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from vllm.v1.spec_decode.custom_class_proposer import create_custom_proposer
from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup

from vllm_ascend_spec.errors import CustomProposerError
from vllm_ascend_spec.log import log_once

if TYPE_CHECKING:
    import numpy as np
    import torch
    from vllm.config import VllmConfig

    from vllm_ascend_spec.config.schema import SpecOptions

PADDING = -1


class SpecCustomClassProposer:
    """Holds an instance of the person's class and checks its drafts.

    Args:
        custom: the instance.
        vllm_config: the engine's.
    """

    # Drafts that do not fit are cut off by the scheduler, for each request by itself.
    drafts_to_the_end = True

    def __init__(self, custom: Any, vllm_config: VllmConfig) -> None:
        spec = vllm_config.speculative_config
        self.custom = custom
        self.name = spec.model
        self.vocab_size = vllm_config.model_config.get_vocab_size()
        self.longest = spec.num_speculative_tokens
        # vLLM does not tell the class how many drafts a batch of this size is to have.
        max_num_seqs = vllm_config.scheduler_config.max_num_seqs
        schedule = spec.num_speculative_tokens_per_batch_size
        self.longest_by_batch = (
            build_dynamic_sd_schedule_lookup(schedule, max_num_seqs, self.longest)
            if schedule
            else [self.longest] * (max_num_seqs + 1)
        )

    @classmethod
    def create(
        cls, vllm_config: VllmConfig, device: torch.device, runner: Any, options: SpecOptions
    ) -> SpecCustomClassProposer:
        """Build the proposer of an engine, from the instance that the runner has, if any."""
        custom = getattr(runner, "drafter", None)
        if custom is None:
            custom = create_custom_proposer(vllm_config)
        return cls(custom, vllm_config)

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """Let the class load what it needs; it may be without this method."""
        if hasattr(self.custom, "load_model"):
            self.custom.load_model(*args, **kwargs)

    def propose(
        self,
        sampled_token_ids: list[list[int]],
        num_tokens_no_spec: np.ndarray,  # [max_num_reqs]
        token_ids_cpu: np.ndarray,  # [max_num_reqs, max_model_len]
        slot_mappings: Any = None,
    ) -> list[list[int]]:
        """Ask the class for drafts; the signature is vLLM's.

        Args:
            sampled_token_ids: tokens of this step by request; none where a prompt goes on.
            num_tokens_no_spec: int32, tokens of each request, those of this step included.
            token_ids_cpu: int32, the tokens themselves.
            slot_mappings: vLLM's, handed on.

        Returns:
            Draft token ids by request, any number up to K each.

        Raises:
            CustomProposerError: the class returned no list of drafts for every request.
        """
        drafts = self.custom.propose(
            sampled_token_ids, num_tokens_no_spec, token_ids_cpu, slot_mappings=slot_mappings
        )
        rows = drafts.tolist() if hasattr(drafts, "tolist") else drafts
        self._require_rows(rows, len(sampled_token_ids))
        longest = self.longest_by_batch[len(rows)]
        return [self._usable(row, longest) for row in rows]

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
        # -1 is how an array is padded where a request has fewer drafts than another.
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
