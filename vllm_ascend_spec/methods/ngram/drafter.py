"""The n-gram drafter: its search uses no thread pool and is compiled at start.

vLLM 0.30 searches in Numba's thread pool (``NgramProposer.batch_propose``), with one thread.
Starting that pool sets the process's number of OpenMP threads to the number of cores, whatever
``OMP_NUM_THREADS`` or the worker's binding said. From then on every CPU kernel of the target runs
with too many threads. So the search is called here as a plain function. It is also compiled before
the first request; vLLM's constructor tries to, but compiles nothing because it asks for drafts of
no request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm.v1.spec_decode import ngram_proposer as stock

from vllm_ascend_spec.methods.drafter import HostDrafter
from vllm_ascend_spec.methods.found_trees import NOTHING, FindsTreesMixin
from vllm_ascend_spec.methods.ngram.trie import continuations, tree_of
from vllm_ascend_spec.upstream.ngram import SearchingProposer

if TYPE_CHECKING:
    from collections.abc import Collection

    import numpy as np
    from typing_extensions import Self

    from vllm_ascend_spec.methods.drafter import DrafterContext, Runner
    from vllm_ascend_spec.methods.step import DraftStep


class NgramDrafter(FindsTreesMixin, HostDrafter, SearchingProposer):
    """vLLM's n-gram proposer with our search; it drafts on the host for every device."""

    runner: Runner
    min_n: int
    max_n: int
    k: int
    max_model_len: int

    @classmethod
    def create(cls, engine: DrafterContext) -> Self:
        """Build the drafter of an engine."""
        drafter = cls(engine.vllm_config)
        drafter.runner = engine.runner
        drafter.finds_trees = engine.speculation.has_trees
        return drafter

    def warm_up(self) -> None:
        """Draft once for the first slot of the runner's batch and discard the result.

        Numba compiles by type, so the arrays have to be those of later calls.
        """
        batch = self.runner.input_batch
        self.look_up(self.k, [[0]], batch.num_tokens_no_spec, batch.token_ids_cpu)

    def draft(self, step: DraftStep) -> list[list[int]]:
        """Look up drafts for every request that has finished prefill."""
        batch = step.batch
        if self.finds_trees:
            return self.find_trees(step)
        return self.look_up(
            step.k, step.sampled_token_ids, batch.num_tokens_no_spec, batch.token_ids_cpu
        )

    def find_trees(self, step: DraftStep) -> list[list[int]]:
        """Look up a tree of drafts for every request that has finished prefill."""
        trees = []
        sampled = step.sampled_token_ids
        assert isinstance(sampled, list)
        for index, new in enumerate(sampled):
            end = int(step.batch.num_tokens_no_spec[index])
            room = min(step.k, self.max_model_len - end) if new else 0
            text = step.batch.token_ids_cpu[index, :end]
            found = continuations(text, self.min_n, self.max_n, room) if room > 0 else []
            trees.append(tree_of(found, room) if found else NOTHING)
        return self.hand_over(trees)

    def search_each(
        self,
        num_requests: int,
        wanted: Collection[int],
        num_tokens: np.ndarray,  # [max_num_reqs]
        token_ids: np.ndarray,  # [max_num_reqs, max_model_len]
        k: int,
    ) -> list[list[int]]:
        """Return up to ``k`` draft token ids for each wanted request, and none for the others."""
        drafts: list[list[int]] = [[] for _ in range(num_requests)]
        for request in wanted:
            drafts[request] = self.search(token_ids[request, : num_tokens[request]], k)
        return drafts

    def search(
        self,
        tokens: np.ndarray,  # [num_tokens]
        k: int,
    ) -> list[int]:
        """Return what followed the longest n-gram that ends ``tokens`` and occurred before."""
        return stock._find_longest_matched_ngram_and_propose_tokens(
            origin_tokens=tokens,
            min_ngram=self.min_n,
            max_ngram=self.max_n,
            max_model_len=self.max_model_len,
            k=k,
        ).tolist()
