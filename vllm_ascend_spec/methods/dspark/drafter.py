"""The blocks of a DSpark head in the two families: which rows a request has, and where."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.methods.loops.parallel import PADDING_SLOT

if TYPE_CHECKING:
    import torch
    from vllm.config import VllmConfig

# vLLM's V1 proposer is made for this method alone, which has the same pass.
SAME_PASS = "dflash"


@contextmanager
def posing_as(speculative_config: Any, method: str) -> Iterator[None]:
    """Let a speculative config name another method in this context."""
    own = speculative_config.method
    speculative_config.method = method
    try:
        yield
    finally:
        speculative_config.method = own


def starts_with_a_draft(hf_config: Any) -> bool:
    """Tell whether the first row of a block, the last token's, yields the first draft."""
    return bool(getattr(hf_config, "sample_from_anchor", True))


class BlockOfRows:
    """Blocks on CPU and CUDA; goes before vLLM's ``DFlashProposer`` in the bases."""

    draft_model_config: Any
    num_speculative_tokens: int
    arange: torch.Tensor
    last_tokens: torch.Tensor
    loop_problem: Callable[[], str | None]

    def __init__(self, vllm_config: VllmConfig, device: torch.device, runner: Any = None) -> None:
        spec: Any = vllm_config.speculative_config
        config = spec.draft_model_config.hf_config
        layers = getattr(config, "target_layer_ids", None)
        if layers and not getattr(config, "eagle_aux_hidden_state_layer_ids", None):
            # V1's runner asks the target for the states of the layers that stand here.
            config.eagle_aux_hidden_state_layer_ids = [layer + 1 for layer in layers]
        with posing_as(spec, SAME_PASS):
            super().__init__(vllm_config, device, runner=runner)  # type: ignore[call-arg]

    def chooses_own_loop(self, wanted: str | None) -> bool:
        """Return that our loop is used: no other has the Markov head.

        Raises:
            ConfigError: our loop lacks something that this engine needs.
        """
        del wanted  # 'stock' has been refused before, see checks.py
        problem = self.loop_problem()
        if problem is not None:
            raise ConfigError(
                "speculative_config.method",
                "dspark",
                f"not possible with {problem} on CPU and CUDA; use another method",
            )
        return True

    def set_inputs_first_pass(self, *args: Any, **kwargs: Any) -> Any:
        """Lay the blocks out; the signature is vLLM's."""
        self.last_tokens = kwargs["next_token_ids"]
        if not starts_with_a_draft(self.draft_model_config.hf_config):
            return super().set_inputs_first_pass(*args, **kwargs)  # type: ignore[misc]
        # A block of DFlash with one mask less has the same rows, of which each yields a draft.
        k = self.num_speculative_tokens
        self.num_speculative_tokens = max(k, 1) - 1
        try:
            num_tokens, _, metadata = super().set_inputs_first_pass(*args, **kwargs)  # type: ignore[misc]
        finally:
            self.num_speculative_tokens = k
        return num_tokens, self.arange[:num_tokens], metadata


class AscendBlockOfRows:
    """Blocks on an NPU; goes before ``AscendDSparkProposer`` in the bases."""

    draft_model_config: Any
    num_speculative_tokens: int
    num_query_per_req: int
    speculative_config: Any
    uses_own_loop: bool
    _dspark_seed_buffer: torch.Tensor
    _per_group_query_slot_mapping_buffers: Mapping[int, torch.Tensor]

    @property
    def last_tokens(self) -> torch.Tensor:
        """The token that each block begins with, int64 [max_num_reqs]."""
        return self._dspark_seed_buffer

    def chooses_own_loop(self, wanted: str | None) -> bool:
        """Tell whether our loop is used; see :meth:`DraftLoopMixin.chooses_own_loop`.

        Raises:
            ConfigError: vllm-ascend's loop is used, and it lacks an option that was given.
        """
        uses_own: bool = super().chooses_own_loop(wanted)  # type: ignore[misc]
        count = self.speculative_config.dspark_draft_topk
        if not uses_own and count is not None:
            raise ConfigError(
                "speculative_config.dspark_draft_topk",
                count,
                "has no effect in vllm-ascend's own draft loop; leave it out",
            )
        return uses_own

    def set_inputs_first_pass(self, *args: Any, **kwargs: Any) -> Any:
        """Lay the blocks out; the signature is vllm-ascend's."""
        # vllm-ascend counts the rows of a block once, but K may change from step to step.
        is_longer = not starts_with_a_draft(self.draft_model_config.hf_config)
        self.num_query_per_req = self.num_speculative_tokens + is_longer
        prepared = super().set_inputs_first_pass(*args, **kwargs)  # type: ignore[misc]
        if self.uses_own_loop:
            num_tokens, _, metadata, _ = prepared
            # The metadata of each group is built from these buffers, not from the slots in it.
            is_beyond = metadata.slot_mapping[:num_tokens] == PADDING_SLOT
            for slots in self._per_group_query_slot_mapping_buffers.values():
                slots[:num_tokens].masked_fill_(is_beyond, PADDING_SLOT)
        return prepared
