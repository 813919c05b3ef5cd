"""Shared base of both families' draft loops: when they are used and how they pick drafts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from vllm_ascend_spec.config.draft_context import draft_context
from vllm_ascend_spec.config.draft_tree import OPTION as TREE
from vllm_ascend_spec.config.draft_window import AUTO, OPTION
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.log import get_logger
from vllm_ascend_spec.methods.drafts_trees import DraftsTreesMixin
from vllm_ascend_spec.methods.loops.argmax import argmax
from vllm_ascend_spec.methods.loops.one_hot import OneHotDraftsMixin
from vllm_ascend_spec.methods.loops.sampling import DraftSampler, make_draft_sampler
from vllm_ascend_spec.methods.loops.window import DraftWindow
from vllm_ascend_spec.methods.tree_drafts import Pass, TreeDrafts, chain_of_passes

if TYPE_CHECKING:
    from typing_extensions import Self
    from vllm.config import VllmConfig
    from vllm.v1.sample.metadata import SamplingMetadata

    from vllm_ascend_spec.config.resolved import SpecConfig
    from vllm_ascend_spec.methods.drafter import DrafterContext
    from vllm_ascend_spec.methods.step import Drafts, DraftStep

logger = get_logger(__name__)
# One draft per request, int64 [num_reqs], and the distributions that these were sampled from,
# float32 [num_reqs, vocab_size], or None.
Picked = tuple[torch.Tensor, torch.Tensor | None]


class DraftLoopMixin(DraftsTreesMixin, OneHotDraftsMixin):
    """Mixin for stock proposers with a draft model; goes before them in the bases.

    Attributes:
        stock_name: owner of the loop that is used if ours cannot be; set by each family.
        uses_own_loop: whether our loop is used.
        keeps_cache_only: whether the model only updates its KV cache in this step and makes no
            drafts; set before each step by drafters that have better drafts.
        verify_backend: backend of the op that samples drafts with the verifier's noise.
        last_graph: name of the ``CUDAGraphMode`` of draft step 1; the runner empties it after
            reading it.
        draft_context: maximum length of a request for which drafts are made. The draft's position
            tables are never read from there on.
        window: the last tokens of a text, which the draft attends to.
        chooses_window: whether the scheduler chooses its size for each step.
    """

    stock_name: str
    uses_own_loop: bool
    keeps_cache_only: bool = False
    verify_backend: str | None = None
    last_graph: str = ""
    draft_context: int
    window: DraftWindow
    chooses_window: bool = False
    net_num_new_slots_per_request: int
    max_model_len: int
    parallel_drafting: bool
    vllm_config: VllmConfig
    speculative_config: Any
    model: Any
    eagle3_use_aux_hidden_state: bool
    _enable_probabilistic_draft_probs: bool
    _last_draft_probs: torch.Tensor | None

    @classmethod
    def create(cls, engine: DrafterContext) -> Self:
        """Build the drafter of an engine.

        Raises:
            ConfigError: ``draft_loop="ours"`` was asked for and cannot be used, or the engine
                needs something that no loop of this family supports.
        """
        drafter = cls(engine.vllm_config, engine.device, engine.runner)  # type: ignore[call-arg]
        drafter.runner = engine.runner  # vllm-ascend's proposer sets it, vLLM's does not
        asked = engine.speculation
        # The stock proposers return the distributions only for the standard method; the block
        # rule needs them too.
        drafter._enable_probabilistic_draft_probs = asked.samples_drafts
        drafter.verify_backend = asked.verify_backend
        longest = engine.vllm_config.model_config.max_model_len
        drafter.draft_context = draft_context(engine.vllm_config) or longest
        drafter.window = DraftWindow(
            asked.draft_window if isinstance(asked.draft_window, int) else None,
            most_rows=asked.max_k + 1 + drafter.net_num_new_slots_per_request,
            max_k=asked.max_k,
        )
        in_one_pass = drafter.parallel_drafting
        drafter.set_up_tree(asked, TreeDrafts.by_depth if in_one_pass else TreeDrafts.by_node)
        drafter.chooses_window = asked.draft_window == AUTO
        drafter.require_possible()
        drafter.uses_own_loop = drafter.chooses_own_loop(asked.draft_loop)
        if asked.draft_window is not None and not drafter.uses_own_loop:
            drafter.require_window_in_stock_loop(asked.draft_window)
        if drafter.tree is not None and not drafter.uses_own_loop:
            drafter.refuse_tree(asked, drafter.loop_problem() or "draft_loop='stock'")
        return drafter

    def require_possible(self) -> None:
        """Refuse options that no loop of this family supports.

        Raises:
            ConfigError: naming the option and the reason.
        """

    @staticmethod
    def refuse_tree(asked: SpecConfig, problem: str) -> NoReturn:
        """Refuse a tree that this engine's loop would not draft.

        Raises:
            ConfigError: naming the option and the reason.
        """
        option = asked.sources.get("has_trees", TREE)
        raise ConfigError(option, asked.tree, f"not possible with {problem}; leave one out")

    def require_window_in_stock_loop(self, asked: int | str) -> None:
        """Refuse a window that the stock loop would ignore.

        Raises:
            ConfigError: naming the reason why our loop is not used.
        """
        problem = self.loop_problem() or "draft_loop='stock'"
        raise ConfigError(OPTION, asked, f"not possible with {problem}; leave it out")

    def chooses_own_loop(self, wanted: str | None) -> bool:
        """Tell whether our loop is used, given the option ``draft_loop``.

        Raises:
            ConfigError: our loop was asked for and cannot be used.
        """
        problem = self.loop_problem()
        if wanted == "ours" and problem:
            raise ConfigError(
                "additional_config.ascend_spec.draft_loop",
                wanted,
                f"not possible with {problem}; valid here: 'auto', 'stock'",
            )
        if wanted == "auto" and problem:
            logger.warning("Draft loop of %s is used, because of %s.", self.stock_name, problem)
        return wanted != "stock" and problem is None

    def loop_problem(self) -> str | None:
        """Return the reason why our loop cannot be used, or None."""
        return next((name for name, present in self.loop_problems().items() if present), None)

    def loop_problems(self) -> Mapping[str, bool]:
        """Map each feature that our loop lacks to whether this engine needs it."""
        raise NotImplementedError

    def has_all_steps_in_a_graph(self) -> bool:
        """Tell whether one graph holds all draft steps, so that none can be skipped."""
        return False

    def keep_positions_inside(
        self,
        positions: torch.Tensor,  # [num_tokens]
    ) -> None:
        """Clamp positions beyond the draft's context in place; no drafts are made from there.

        KV cache slots have been computed before, from the true positions. No draft that is
        verified attends to tokens beyond the draft's context.

        Args:
            positions: int32 or int64, positions of the rows of a pass.
        """
        if self.draft_context == self.max_model_len:
            return
        # DFlash computes keys and values from the target's states, with separate text positions.
        of_text = getattr(self, "_context_positions_buffer", None)
        for own in (positions,) if of_text is None else (positions, of_text):
            own.clamp_(max=self.draft_context - 1)

    @property
    def drafts_to_the_end(self) -> bool:
        """Whether drafting goes on while a request nears its end: our loop plans each row."""
        return self.uses_own_loop

    @property
    def shares_noise(self) -> bool:
        """Whether drafts are sampled with the verifier's noise: vLLM's loop has its own."""
        return self.uses_own_loop

    @property
    def wants_aux_hidden_states(self) -> bool:
        """Whether the target has to return the states of inner layers, which EAGLE-3 reads."""
        return self.eagle3_use_aux_hidden_state

    def warm_up(self) -> None:
        """Do nothing: the runner warms the model up."""

    def draft(self, step: DraftStep) -> Drafts:
        """Let the stock runner prepare the inputs; it calls the loop with them."""
        if self.chooses_window:
            self.window.size = step.window
        return step.draft_by_stock()

    def later_passes(self, num_steps: int) -> list[Pass]:
        """Return the passes of the draft after the first one, for so many drafts in a row."""
        if self.tree is None:
            return chain_of_passes(num_steps)
        return [each for each in self.tree.passes if each.depth < num_steps - 1]

    def read_by(self, each: Pass, drafts: list[Picked]) -> torch.Tensor:
        """Return the draft of each request that a pass reads, int64 [num_reqs].

        Args:
            each: the pass.
            drafts: what the passes before it have picked.
        """
        return drafts[each.before][0] if self.tree is None else self.tree.token_of(each)

    def sampler_of(self, sampling: SamplingMetadata) -> DraftSampler | None:
        """Return the sampler for the drafts of a step, or None if all drafts are greedy."""
        if not self._enable_probabilistic_draft_probs:
            return None
        return make_draft_sampler(self.runner, sampling, self.verify_backend)

    def pick(
        self,
        hidden: torch.Tensor,  # [num_reqs, hidden_size]
        sampler: DraftSampler | None,
    ) -> Picked:
        """Pick one draft per request, and return its distribution too if it was sampled."""
        if self.tree is not None:
            ranked = self.tree.take(self.apply_head(self.model.compute_logits, hidden))
            return ranked[:, 0], None
        if sampler is None:
            return self.argmax(hidden), None
        return sampler.draw(self.apply_head(self.model.compute_logits, hidden))

    def pick_all(
        self,
        hidden: torch.Tensor,  # [num_reqs, K, hidden_size]
        sampler: DraftSampler | None,
    ) -> torch.Tensor:
        """Pick all drafts of one pass, keep their distributions and return [num_reqs, K]."""
        num_reqs, k, _ = hidden.shape
        rows = hidden.flatten(0, 1)
        self._last_draft_probs = None
        if sampler is None and self.tree is None:
            return self.pick(rows, None)[0].view(num_reqs, k)
        logits = self.apply_head(self.model.compute_logits, rows).view(num_reqs, k, -1)
        if self.tree is not None:
            for place in range(k):
                self.tree.take(logits[:, place])
            return self.tree.lay_out()
        assert sampler is not None
        return self.join([sampler.draw(logits[:, place]) for place in range(k)])

    def argmax(
        self,
        hidden: torch.Tensor,  # [num_reqs, hidden_size]
    ) -> torch.Tensor:
        """Return the argmax token of each request, int64 [num_reqs].

        For a draft with a reduced vocabulary, ``compute_logits`` scatters the logits to the
        target's vocabulary. An argmax does not need that.
        """
        offsets = getattr(self.model, "draft_id_to_target_id", None)
        if offsets is None:
            return argmax(self.apply_head(self.model.compute_logits, hidden))
        head = partial(self.model.logits_processor, self.model.lm_head)
        own = argmax(self.apply_head(head, hidden))
        return own + offsets[own]

    def apply_head(
        self,
        head: Callable[[torch.Tensor], torch.Tensor],
        hidden: torch.Tensor,  # [num_rows, hidden_size]
    ) -> torch.Tensor:
        """Return the logits of some rows, [num_rows, vocab_size]; families may pad the rows."""
        return head(hidden)

    def join(
        self,
        picked: list[Picked],
    ) -> torch.Tensor:
        """Keep the distributions for the verifier and return the drafts, [num_reqs, K]."""
        self._last_draft_probs = None
        if self.tree is not None:
            return self.tree.lay_out()
        if picked[0][1] is not None:
            self._last_draft_probs = torch.stack([probs for _, probs in picked], dim=1)
        return torch.stack([tokens for tokens, _ in picked], dim=1)
